-- If every request needs a credential, requires from now on a release that checks tokens. Scans schema_steps and settings, small
-- tables.
update schema_steps set works_from = step
 where name = 'access' and works_from < step
   and exists (select 1 from settings where name = 'auth_required' and value = 'true');
