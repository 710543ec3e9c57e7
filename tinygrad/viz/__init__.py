"""Pictures for people: what a run did, on one page, of arrays alone (`picture`); what computing a
tensor would do, as text (`explain`), a kernel's loops (`loops`), and through which stages a tensor
goes (`explorer`)."""
