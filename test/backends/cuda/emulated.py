"""`-p backends.cuda.emulated`: the tests of this pytest find a card that isn't there."""

from backends.cuda.fake_driver import FakeLibrary, install

LIBRARY: FakeLibrary = install()
