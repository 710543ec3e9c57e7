# ruff: noqa: E501
"""Legal programs of one line that mean the same here and in PyTorch, for `fuzz_silent`."""

import re

# x: floats of a shape, i: whole numbers from 0 to 2, b: bools, w: a parameter; moved: three steps
METHODS = """
x(2, 3).sum(1)                              x(2, 3).mean(dim=1, keepdim=True)
x(2, 3).prod(0)                             x(2, 3).amax(1)
x(2, 3).std(1, correction=0)                x(2, 3).var(1)
x(2, 3).argmax(1)                           x(2, 3).argmin(dim=0)
x(2, 3).cumsum(1)                           x(2, 3).cumprod(0)
x(2, 3).softmax(1)                          x(2, 3).log_softmax(-1)
x(2, 3).logsumexp(1)                        x(2, 3).norm(2)
x(2, 3).sort(1)[0]                          x(2, 3).argsort(1)
x(2, 5).topk(2, 1)[0]                       x(7).kthvalue(2)[0]
x(2, 5).quantile(0.5, 1)                    x(2, 5).median(1)[0]
x(2, 3).reshape(3, 2)                       x(2, 3).view(6)
x(2, 3).permute(1, 0)                       x(2, 3).transpose(0, 1)
x(2, 3).unsqueeze(1)                        x(2, 1, 3).squeeze(1)
x(2, 3).flatten(0, 1)                       x(6).unflatten(0, (2, 3))
x(1, 3).expand(2, 3)                        x(2, 3).repeat(2, 1)
x(2, 3).flip(1)                             x(2, 3).roll(1, 0)
x(2, 3).rot90(1, (0, 1))                    x(2, 6).split(2, 1)
x(2, 6).chunk(2, 1)                         x(2, 3).unbind(1)
x(2, 3).narrow(1, 0, 2)                     x(2, 3).select(1, 1)
x(2, 3).movedim(0, 1)                       x(3, 3).diagonal(1)
x(3, 3).tril(1)                             x(3, 3).triu(-1)
x(3, 3).trace()                             x(3).diag(1)
x(8).unfold(0, 3, 2)                        x(2, 3).repeat_interleave(2, 1)
x(2, 3).gather(1, i(2, 2))                  x(3, 3).index_select(1, i(3))
x(2, 3).take(i(3))                          x(3, 3).index_add(0, i(3), x(3, 3))
x(3, 3).index_copy(0, i(3), x(3, 3))        x(3, 3).index_fill(0, i(2), 1.0)
x(3, 3).scatter(1, i(3, 3), x(3, 3))        x(3, 3).scatter_add(1, i(3, 3), x(3, 3))
x(3, 3).scatter_reduce(1, i(3, 3), x(3, 3), 'amax')
x(2, 3).masked_fill(b(2, 3), 1.0)           x(2, 3).masked_select(b(2, 3))
x(2, 3).clamp(-0.5, 0.5)
x(2, 3).matmul(x(3, 2))                     x(2, 3).mm(x(3, 2))
x(2, 2, 3).bmm(x(2, 3, 4))                  x(3).dot(x(3))
x(2, 3).mv(x(3))                            x(3).outer(x(3))
x(2, 3).add(x(2, 3), alpha=2)               x(2, 3).sub(x(3))
x(2, 3).mul(2)                              x(2, 3).div(x(3), rounding_mode='floor')
x(2, 3).pow(2)                              pos(2, 3).pow(x(3))
x(2, 3).fmod(x(3))                          x(2, 3).remainder(2.0)
x(2, 3).maximum(x(3))                       x(2, 3).atan2(x(3))
x(2, 3).lerp(x(2, 3), 0.5)                  x(2, 3).addcmul(x(2, 3), x(3), value=2)
x(2, 2).addmm(x(2, 3), x(3, 2), beta=2)     x(2).addmv(x(2, 3), x(3))
x(2, 3).round(decimals=1)                   x(2, 3).nan_to_num(0.0, 1.0, 2.0)
x(2, 3).logit(0.1)                          x(2, 3).hypot(x(3))
pos(2, 3).polygamma(1)                      (pos(2, 3) + 3).mvlgamma(2)
x(3, 3).diagonal_scatter(x(2), 1)           i(2, 3).bitwise_left_shift(i(3))
x(2, 3).eq(x(3))                            x(2, 3).lt(0)
x(2, 3).isclose(x(2, 3), 0.1, 0.1)          x(2, 3).allclose(x(2, 3), 0.1)
i(2, 3).bitwise_and(i(3))                   i(2, 3).bitwise_or(1)
i(2, 3).float()                             i(3).bincount(minlength=5)
x(9).histc(4, -1, 1)                        x(5).diff(1)
x(3, 5).cov(correction=0)
T.cdist(x(2, 3), x(4, 3), 1.0)              x(2, 3).kron(x(2, 2))
x(3).cross(x(3), dim=0)                     T.tensordot(x(2, 3), x(3, 2), 1)
x(2, 3).renorm(2, 0, 1.0)                   square.inverse()
square.det()                                square.matrix_power(2)
square.cholesky()                           x(2, 3).unique()
x(2, 3).type_as(i(2))                       x(2, 3).view_as(x(3, 2))
x(2, 3).new_zeros(2, 3)                     x(2, 3).new_full((2,), 1.5)
x(2, 3).sum_to_size(1, 3)                   x(2, 3).reshape_as(x(6))
x(2, 3).multiply(x(3))                      x(2, 3).squeeze_(0)
x(2, 3).add_(x(3))                          x(2, 3).mul_(2.0)
x(2, 3).fill_(1.5)                          x(2, 3).zero_()
x(2, 3).copy_(x(3))                         x(2, 3).clamp_(0.0, 0.5)
x(2, 3).masked_fill_(b(2, 3), 1.0)          x(2, 3).t_()
T.cat((x(2, 3), x(2, 3)), 1)                T.stack((x(2, 3), x(2, 3)), 1)
T.zeros(2, 3)                               T.ones((2, 3))
T.full((2, 3), 1.5)                         T.arange(1, 7, 2)
T.linspace(0, 1, 5)                         T.eye(3, 2)
T.einsum('ij,jk->ik', x(2, 3), x(3, 2))     T.logspace(0, 1, 3)
T.meshgrid(x(2), x(3), indexing='ij')       T.where(b(2, 3), x(2, 3), x(3))
T.searchsorted(T.arange(5), i(3))           T.bucketize(x(3), T.linspace(0, 1, 3))
T.tril_indices(3, 3, 1)                     T.combinations(x(4), 2)
T.cartesian_prod(x(2), x(3))                T.vander(x(3), 3)
T.hstack((x(2, 3), x(2, 3)))                T.vstack((x(2, 3), x(2, 3)))
T.block_diag(x(2, 3), x(2))                 T.trapezoid(x(5), dx=0.5)
"""
FUNCTIONS = """
F.relu(x(2, 3))                             F.leaky_relu(x(2, 3), 0.1)
F.elu(x(2, 3), 0.5)                         F.celu(x(2, 3), 0.5)
F.gelu(x(2, 3), approximate='tanh')         F.softplus(x(2, 3), 2, 10)
F.hardtanh(x(2, 3), -0.5, 0.5)              F.threshold(x(2, 3), 0.1, 0.5)
F.glu(x(2, 4), 1)                           F.prelu(x(2, 3), x(3))
F.softmax(x(2, 3), 1)                       F.log_softmax(x(2, 3), dim=1)
F.softmin(x(2, 3), dim=1)                   F.hardshrink(x(2, 3), 0.2)
F.softshrink(x(2, 3), 0.2)                  F.normalize(x(2, 3), 2.0, 1)
F.one_hot(i(3), 5)                          F.dropout(x(2, 3), 0.0, True)
F.dropout(x(2, 3), 0.3, False)              F.linear(x(2, 3), x(4, 3), x(4))
F.bilinear(x(2, 3), x(2, 4), x(5, 3, 4), x(5))
F.embedding(i(2, 3), x(4, 5), padding_idx=1)
F.embedding_bag(i(2, 3), x(4, 5), mode='sum')
F.conv1d(x(2, 4, 9), x(6, 2, 3), x(6), 2, 1, 1, 2)
F.conv2d(x(1, 4, 6, 5), x(6, 4, 3, 2), x(6), stride=2, padding=1, dilation=1, groups=1)
F.conv3d(x(1, 2, 4, 5, 4), x(3, 2, 2, 3, 2), x(3), padding=(1, 0, 1))
F.conv_transpose1d(x(2, 4, 5), x(4, 3, 3), x(3), 2, 1, 1)
F.conv_transpose2d(x(1, 4, 3, 5), x(4, 3, 3, 2), x(3), stride=2, padding=1, output_padding=1)
F.pad(x(2, 3), (1, 2), 'constant', 0.5)     F.pad(x(1, 4, 6, 5), (1, 1, 2, 2), mode='reflect')
F.max_pool1d(x(1, 2, 9), 3, 2, 1)           F.max_pool2d(x(1, 4, 6, 5), 2, 2, 1)
F.max_pool2d(x(1, 4, 6, 5), (2, 3), ceil_mode=True)
F.avg_pool1d(x(1, 2, 9), 3, 2, 1)           F.avg_pool2d(x(1, 4, 6, 5), 2, 2, 1, True, False)
F.adaptive_avg_pool2d(x(1, 4, 6, 5), (2, 3))
F.adaptive_avg_pool1d(x(1, 2, 9), 3)        F.adaptive_max_pool2d(x(1, 4, 6, 5), 2)
F.lp_pool2d(x(1, 4, 6, 5), 2.0, 2)          F.unfold(x(1, 4, 6, 5), 2, 1, 0, 2)
F.fold(x(1, 12, 4), (3, 3), (2, 2))         F.pixel_shuffle(x(1, 4, 6, 5), 2)
F.pixel_unshuffle(x(1, 2, 6, 4), 2)         F.channel_shuffle(x(1, 4, 6, 5), 2)
F.interpolate(x(1, 4, 6, 5), scale_factor=2, mode='nearest')
F.interpolate(x(1, 4, 6, 5), (3, 7), mode='bilinear', align_corners=False)
F.grid_sample(x(1, 2, 4, 4), x(1, 3, 3, 2), mode='bilinear', padding_mode='zeros', align_corners=False)
F.affine_grid(x(1, 2, 3), (1, 1, 4, 4), align_corners=False)
F.layer_norm(x(2, 4, 5), (4, 5), x(4, 5), x(4, 5), 0.1)
F.group_norm(x(2, 4, 5), 2, x(4), x(4), 0.1)
F.instance_norm(x(2, 4, 5), None, None, x(4), x(4), True, 0.1, 0.01)
F.batch_norm(x(2, 4, 5), x(4), pos(4), x(4), x(4), False, 0.1, 0.01)
F.rms_norm(x(2, 5), (5,), x(5), 0.1)        F.local_response_norm(x(2, 4, 5), 2, 0.1, 0.5, 1.0)
F.mse_loss(x(2, 3), x(2, 3), reduction='sum')
F.l1_loss(x(2, 3), x(2, 3), reduction='none')
F.smooth_l1_loss(x(2, 3), pos(2, 3), reduction='mean', beta=0.5)
F.huber_loss(x(2, 3), pos(2, 3), reduction='mean', delta=0.5)
F.cross_entropy(x(3, 5), i(3), pos(5), ignore_index=1, reduction='mean', label_smoothing=0.1)
F.cross_entropy(x(2, 4, 5), i(2, 5))        F.cross_entropy(x(3, 5), pos(3, 5))
F.nll_loss(x(3, 5), i(3), weight=pos(5), ignore_index=1, reduction='sum')
F.kl_div(x(2, 3), pos(2, 3), reduction='batchmean', log_target=False)
F.binary_cross_entropy(x(2, 3).sigmoid(), pos(2, 3), pos(2, 3), reduction='mean')
F.binary_cross_entropy_with_logits(x(2, 3), pos(2, 3), pos_weight=pos(3))
F.poisson_nll_loss(x(2, 3), pos(2, 3), True, reduction='mean')
F.gaussian_nll_loss(x(2, 3), x(2, 3), pos(2, 3), full=True, eps=0.01, reduction='mean')
F.soft_margin_loss(x(2, 3), x(2, 3))        F.hinge_embedding_loss(x(2, 3), 2 * b(2, 3).int() - 1, 0.5)
F.margin_ranking_loss(x(3), pos(3), x(3), 0.5)
F.cosine_embedding_loss(x(3, 2), pos(3, 2), 2 * b(3).int() - 1, 0.1)
F.triplet_margin_loss(x(2, 3), pos(2, 3), -x(2, 3), margin=0.5, p=2.0, swap=True)
F.multilabel_soft_margin_loss(x(2, 3), i(2, 3))
F.multi_margin_loss(x(3, 5), i(3), p=1, margin=0.5)
F.cosine_similarity(x(2, 3), pos(2, 3), 1, 1e-3)
F.cosine_similarity(x(2, 3), pos(3), 0)     F.cosine_similarity(x(2, 1), pos(2, 3), 1)
F.pairwise_distance(x(2, 3), pos(2, 3), 2.0, 1e-3, True)
F.ctc_loss(F.log_softmax(x(6, 2, 4), -1), i(2, 2) + 1, 6 - i(2), 2 - i(2), 0, 'sum')
F.scaled_dot_product_attention(x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4), b(3, 5), 0.0, scale=0.5)
F.conv2d(x(4, 6, 5), x(6, 4, 3, 3), padding=1)
F.conv_transpose2d(x(4, 6, 5), x(4, 3, 3, 3), stride=2, output_padding=1)
F.unfold(x(4, 6, 5), 2, stride=2)           F.fold(x(8, 6), (3, 4), 2)
F.dropout1d(x(2, 3), 0.0)                   F.dropout3d(x(1, 2, 2, 2), 0.0)
F.embedding(i(2, 3), x(5, 4), max_norm=0.5, norm_type=2.0, scale_grad_by_freq=True)
F.embedding_bag(i(2, 3), x(5, 4), max_norm=0.5, norm_type=1.0, mode='sum')
F.mse_loss(x(2, 3), pos(2, 3), reduction='mean', weight=pos(2, 3))
F.leaky_relu_(x(2, 3), 0.1)                 F.threshold_(x(2, 3), 0.1, 0.5)
F.pdist(x(3, 4), 2.0)                       F.alpha_dropout(x(2, 3), 0.5, False)
"""
LAYERS = """
nn.Conv1d(4, 6, 3, 2, 1, 1, 2)(x(2, 4, 9)).shape
nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=1, groups=2, bias=False)(x(1, 4, 6, 5)).shape
nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2)(x(1, 4, 6, 5)).shape
nn.Conv2d(4, 6, 3, padding='same')(x(1, 4, 6, 5)).shape
nn.Linear(3, 4, bias=True)(x(2, 3)).shape
nn.Bilinear(3, 4, 5)(x(2, 3), x(2, 4)).shape
nn.Embedding(5, 4, padding_idx=1)(i(2, 3)).shape
nn.BatchNorm2d(4, 1e-3)(x(1, 4, 6, 5))      nn.BatchNorm1d(4)(x(2, 4, 5))
nn.LayerNorm((4, 5), 1e-3)(x(2, 4, 5))      nn.GroupNorm(2, 4, 1e-3)(x(2, 4, 5))
nn.InstanceNorm1d(4, 1e-3)(x(2, 4, 5))      nn.RMSNorm(5, 1e-3)(x(2, 5))
nn.LocalResponseNorm(2, 0.1, 0.5, 1.0)(x(2, 4, 5))
nn.InstanceNorm2d(4)(x(4, 6, 5))            nn.BatchNorm3d(4)(x(2, 4, 2, 3, 3))
nn.Conv1d(4, 6, 3)(x(4, 9)).shape           nn.Dropout1d(0.0)(x(2, 3))
nn.LSTM(3, 4, proj_size=2)(x(5, 2, 3))[0].shape
nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2, 5], div_value=1.5)(x(3, 4), i(3)).output * 0
nn.LSTM(3, 4, 2)(x(5, 2, 3))[0].shape       nn.GRU(3, 4, num_layers=1, batch_first=True)(x(5, 2, 3))[0].shape
nn.RNN(3, 4, nonlinearity='relu')(x(5, 2, 3))[0].shape
nn.LSTMCell(3, 4)(x(2, 3))[0].shape         nn.GRUCell(3, 4)(x(2, 3)).shape
nn.MultiheadAttention(4, 2)(x(3, 2, 4), x(5, 2, 4), x(5, 2, 4))[0].shape
nn.TransformerEncoderLayer(4, 2, 8, 0.0, 'relu')(x(3, 2, 4)).shape
nn.TransformerDecoderLayer(4, 2, 8, 0.0)(x(3, 2, 4), x(5, 2, 4)).shape
nn.Dropout(0.0)(x(2, 3))                    nn.Dropout2d(0.0)(x(1, 4, 6, 5))
nn.MaxPool2d(2, 2, 1)(x(1, 4, 6, 5))        nn.AvgPool2d(2, stride=1, padding=1)(x(1, 4, 6, 5))
nn.AdaptiveAvgPool2d((2, 3))(x(1, 4, 6, 5))  nn.AdaptiveMaxPool1d(3)(x(1, 2, 9))
nn.Flatten(1, -1)(x(2, 4, 5))               nn.Unflatten(1, (2, 2))(x(2, 4, 5))
nn.Upsample(scale_factor=2, mode='bilinear')(x(1, 4, 6, 5))
nn.PixelShuffle(2)(x(1, 4, 6, 5))           nn.ZeroPad2d((1, 1, 0, 2))(x(1, 4, 6, 5))
nn.ReflectionPad1d(2)(x(1, 2, 9))           nn.ConstantPad1d((1, 2), 0.5)(x(1, 2, 9))
nn.Softmax(1)(x(2, 3))                      nn.LeakyReLU(0.1)(x(2, 3))
nn.ELU(0.5)(x(2, 3))                        nn.GELU('tanh')(x(2, 3))
nn.PReLU(3, 0.1)(x(2, 3))                   nn.Threshold(0.1, 0.5)(x(2, 3))
nn.Hardtanh(-0.5, 0.5)(x(2, 3))             nn.Softplus(2, 10)(x(2, 3))
nn.GLU(1)(x(2, 4))                          nn.ReLU()(x(2, 3))
nn.MSELoss(reduction='sum')(x(2, 3), x(2, 3))
nn.CrossEntropyLoss(pos(5), ignore_index=1, label_smoothing=0.1)(x(3, 5), i(3))
nn.NLLLoss()(x(3, 5), i(3))                 nn.BCEWithLogitsLoss()(x(2, 3), pos(2, 3))
nn.HuberLoss('mean', 0.5)(x(2, 3), pos(2, 3))
nn.EmbeddingBag(5, 4, mode='mean')(i(2, 3)).shape
nn.CosineSimilarity(1)(x(2, 3), pos(2, 3))  nn.TripletMarginLoss(0.5)(x(2, 3), pos(2, 3), -x(2, 3))
init.constant_(x(2, 3), 0.5)                init.uniform_(x(2, 3), 0.5, 0.5)

init.calculate_gain('leaky_relu', 0.1)
init.kaiming_uniform_(x(2, 3), 0.1, mode='fan_in', nonlinearity='relu').shape
init.xavier_uniform_(x(2, 3), 2.0).shape    init.orthogonal_(x(2, 3), 2.0).shape
init.dirac_(x(4, 2, 3), 2)                  init.sparse_(x(4, 3), 0.5, 0.1).shape
init.trunc_normal_(x(2, 3), 0.0, 1.0, -1.0, 1.0).shape
"""
STEPS = """
optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)
optim.Adam(ps, lr=0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1, amsgrad=True)
optim.AdamW(ps, 0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1)
optim.NAdam(ps, lr=0.1, eps=1e-3, weight_decay=0.1, momentum_decay=0.01)
optim.RAdam(ps, lr=0.1, betas=(0.9, 0.99), eps=1e-3)
optim.Adamax(ps, lr=0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1)
optim.Adagrad(ps, 0.1, 0.1, 0.1, initial_accumulator_value=0.1, eps=1e-3)
optim.Adadelta(ps, lr=0.1, rho=0.9, eps=1e-3, weight_decay=0.1)
optim.RMSprop(ps, lr=0.1, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.5)
optim.Rprop(ps, lr=0.1, etas=(0.5, 1.2), step_sizes=(0.01, 1.0))
optim.ASGD(ps, lr=0.1, lambd=0.01, alpha=0.5, t0=2.0, weight_decay=0.1)
optim.Adafactor(ps, lr=0.1, beta2_decay=-0.8, d=1.0, weight_decay=0.1)
"""
SCHEDULES = """
sched.StepLR(o, 2, gamma=0.5)               sched.MultiStepLR(o, milestones=[1, 2], gamma=0.5)
sched.ExponentialLR(o, 0.5)                 sched.CosineAnnealingLR(o, 3, eta_min=0.01)
sched.LinearLR(o, 0.5, 1.0, 2)              sched.ConstantLR(o, factor=0.5, total_iters=2)
sched.PolynomialLR(o, 3, power=2.0)         sched.CosineAnnealingWarmRestarts(o, 2, T_mult=2, eta_min=0.01)
sched.OneCycleLR(o, 0.5, total_steps=5, pct_start=0.4, anneal_strategy='cos', base_momentum=0.8, max_momentum=0.9)
sched.CyclicLR(o, 0.1, 0.5, step_size_up=2, mode='triangular', scale_fn=None, scale_mode='cycle', cycle_momentum=True, base_momentum=0.5)
sched.LambdaLR(o, lambda t: 0.5 ** t)       sched.MultiplicativeLR(o, lambda t: 0.5)
"""


def lines(text: str) -> list[str]:
    """Two programs may share a line."""
    return [call for line in text.splitlines() for call in re.split(r"\s{2,}", line) if call]


CALLS = [call for text in (METHODS, FUNCTIONS, LAYERS) for call in lines(text)]
CALLS += [f"moved(lambda ps: {call})" for call in lines(STEPS)]
CALLS += [f"moved(lambda ps: optim.SGD(ps, lr=0.1), lambda o: {call})" for call in lines(SCHEDULES)]
