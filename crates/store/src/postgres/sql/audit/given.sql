-- Reads the last number that was given to an audit row; 0 if there is none. Reads a sequence, which shows numbers of
-- transactions in progress too.
select case when is_called then last_value else 0 end from audit_id_seq;
