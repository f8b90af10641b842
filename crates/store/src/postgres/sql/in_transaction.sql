-- Whether a transaction is open: it began before this statement then. As text, in one message.
select now() <> statement_timestamp() as open;
