-- Whether a transaction is open: then it began before this statement. Sent as plain text, in one message.
select now() <> statement_timestamp() as open;
