-- Reads the highest change number. Index: epochs_seq, backwards.
select coalesce(max(seq), 0) from epochs;
