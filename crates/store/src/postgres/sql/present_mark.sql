-- The number of the last change. Index: epochs_seq, backwards.
select coalesce(max(seq), 0) from epochs;
