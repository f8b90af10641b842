-- Serializes changes of credentials until the transaction ends. Primary key: settings.
select value from settings where name = 'auth_required' for update;
