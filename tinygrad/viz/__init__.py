"""Pictures for people: what a run did, on one page. Needs only arrays, never a device."""
