"""Pictures for people: what a run did, on one page, of arrays alone (`picture`); what computing a
tensor would do, as text (`explain`), and through which stages (`explorer`)."""
