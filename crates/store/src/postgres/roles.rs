//! Roles of PostgreSQL and row-level security.
//!
//! A node connects either as the owner of the tables, or as a role that owns nothing and inherits nothing
//! (`everytick migrate --app-role`). In the second case each transaction begins as one of two roles without a login:
//!
//! - `everytick_api`, with the tenant in the setting `everytick.tenant`: the policies show it only rows of that tenant.
//!   A call of the store that is given a tenant uses it (`PostgresStore::of`).
//! - `everytick_engine`, which sees the rows of all tenants: everything else.
//!
//! Both are set with `set local` in the text that begins the transaction: no round trip, and behind a transaction
//! pooler nothing stays with the connection. Outside of a transaction the login role can read no table.

use everytick_domain::ids::TenantId;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqlSafeStr as _, SqlStr};

use super::{DbTx, Failed, PostgresStore, days::Day, is_locked, open};
use crate::{Result, StoreError};

const DOING: &str = "check the database role";
const INSTALLING: &str = "install row-level security";
/// The longest name that PostgreSQL does not cut.
const ROLE_BYTES_MAX: usize = 63;
/// How to become one of the roles, as the end of the text that begins a transaction.
pub(super) const AS_ENGINE: &str = "; set local role everytick_engine";
const AS_API: &str = "; set local role everytick_api; set local everytick.tenant = ";

/// As whom a node is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Login {
    /// As the owner of the tables, or to a database without tables. Row-level security does not limit it.
    Owner,
    /// As a role that can only become `everytick_api` or `everytick_engine`.
    App,
}

/// What `roles/login.sql` reads.
struct Found {
    role: String,
    schema: String,
    bypasses: bool,
    migrated: bool,
    owns: bool,
    member: bool,
    inherits: bool,
    protected: bool,
    creates: bool,
}

impl Login {
    /// Reads as whom the connection is, and refuses a role that is neither.
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Self> {
        let found = Found::read(connection).await?;
        if found.owns {
            if found.protected {
                tracing::warn!(
                    role = found.role,
                    "row-level security is installed, but this node connects as the owner of the tables, which it does not limit"
                );
            }
            return Ok(Self::Owner);
        }
        found.check().map(|()| Self::App)
    }

    /// The texts that begin a kind of transaction.
    pub(super) fn form(self, begin: String) -> Form {
        match self {
            Self::Owner => Form { engine: AssertSqlSafe(begin).into_sql_str(), api: None },
            Self::App => Form {
                engine: AssertSqlSafe(format!("{begin}{AS_ENGINE}")).into_sql_str(),
                api: Some(format!("{begin}{AS_API}")),
            },
        }
    }
}

impl Found {
    async fn read(connection: &mut PgConnection) -> Result<Self> {
        // As plain text: a pooler might send the parts of a prepared statement to different connections.
        let row = sqlx::raw_sql(sql!("roles/login")).fetch_one(connection).await.failed(DOING)?;
        let flag = |name| row.try_get::<bool, _>(name).failed(DOING);
        Ok(Self {
            role: row.try_get("role").failed(DOING)?,
            schema: row.try_get("schema").failed(DOING)?,
            bypasses: flag("bypasses")?,
            migrated: flag("migrated")?,
            owns: flag("owns")?,
            member: flag("member")?,
            inherits: flag("inherits")?,
            protected: flag("protected")?,
            creates: flag("creates")?,
        })
    }

    /// Whether a role that does not own the tables is limited as it must be.
    fn check(&self) -> Result<()> {
        let Self { role, schema, .. } = self;
        let wrong = if !self.member {
            "neither owns the tables nor is a member of everytick_api and everytick_engine".to_owned()
        } else if self.bypasses {
            format!("is not limited by row-level security; run: alter role \"{role}\" nobypassrls")
        } else if self.inherits {
            format!("inherits the privileges of its roles; run: alter role \"{role}\" noinherit")
        } else if self.creates {
            format!(
                "may create objects in the schema {schema}; run: revoke create on schema {schema} from public, \"{role}\""
            )
        } else if !self.protected {
            "finds no row-level security in this database".to_owned()
        } else {
            return Ok(());
        };
        Err(StoreError::Unusable(format!(
            "the database role {role} {wrong}; `everytick migrate --app-role {role}` with the owner's URL prepares it"
        )))
    }
}

/// The texts that begin transactions of one kind.
#[derive(Clone)]
pub(super) struct Form {
    engine: SqlStr,
    /// Up to the number of the tenant; `None` for the owner.
    api: Option<String>,
}

impl Form {
    pub(super) fn text(&self, tenant: Option<TenantId>) -> SqlStr {
        match (&self.api, tenant) {
            (Some(api), Some(tenant)) => AssertSqlSafe(format!("{api}'{}'", tenant.raw())).into_sql_str(),
            _ => self.engine.clone(),
        }
    }
}

/// A store limited to the rows of one tenant, where row-level security is installed.
#[derive(Clone, Copy)]
pub(super) struct OfTenant<'a> {
    store: &'a PostgresStore,
    tenant: Option<TenantId>,
}

impl PostgresStore {
    /// For calls of a tenant. Without a tenant, the calls are of the installation.
    pub(super) fn of(&self, tenant: impl Into<Option<TenantId>>) -> OfTenant<'_> {
        OfTenant { store: self, tenant: tenant.into() }
    }

    /// Whether the database separates tenants: this node does not connect as the owner of the tables.
    #[must_use]
    pub fn has_row_level_security(&self) -> bool {
        self.login == Login::App
    }
}

impl OfTenant<'_> {
    pub(super) async fn write(self, doing: &'static str) -> Result<DbTx> {
        self.store.begin(&self.store.begin.write, self.tenant, doing).await
    }
    pub(super) async fn write_brief(self, doing: &'static str) -> Result<DbTx> {
        self.store.begin(&self.store.begin.brief, self.tenant, doing).await
    }
    pub(super) async fn write_in_order(self, brief: bool, doing: &'static str) -> Result<DbTx> {
        let begin = if brief { &self.store.begin.claim_brief } else { &self.store.begin.claim };
        self.store.begin(begin, self.tenant, doing).await
    }
    pub(super) async fn read(self, doing: &'static str) -> Result<DbTx> {
        self.store.begin(&self.store.begin.read, self.tenant, doing).await
    }
    pub(super) async fn reads<T>(self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.store.reads(call).await
    }
    pub(super) async fn writes<T>(self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.store.writes(call).await
    }
}

/// Refuses a database in which a table with rows of tenants is not protected. Day tables are not checked: one that a node of an
/// earlier release made is not addressed by its name until `days::make` has protected it.
pub(super) async fn check_tables(store: &PostgresStore) -> Result<()> {
    if store.login == Login::Owner {
        return Ok(());
    }
    let mut read = store.read(DOING).await?;
    let found: Vec<String> = read.scalars(query!("roles/unprotected")).await?;
    let found: Vec<&str> = found.iter().map(String::as_str).filter(|name| !Day::is_table(name)).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "these tables lack row-level security or have policies of their own: {}; drop such policies, and run `everytick migrate \
         --app-role` with the owner's URL",
        found.join(", ")
    )))
}

/// What [`PostgresStore::install_roles`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RolesInstalled {
    /// The application's role is new, so it has no password yet.
    pub created: bool,
}

/// Creates the roles, and protects all tables. The schema is migrated. Each table has a transaction of its own, so that nodes
/// which are alive wait for one at a time. Repeating it changes nothing that is right.
pub(super) async fn install(connection: &mut PgConnection, app: &str) -> Result<RolesInstalled> {
    let found = Found::read(connection).await?;
    check_name(app)?;
    if !found.owns || !found.migrated {
        return Err(StoreError::Unusable(format!(
            "the database role {} does not own the tables; use the owner's URL",
            found.role
        )));
    }
    if app == found.role {
        return Err(StoreError::Unusable(format!(
            "--app-role {app} is the owner of the tables; name another role, as which the nodes connect"
        )));
    }
    let unlimited = "select exists (select 1 from pg_roles where rolname = $1 and (rolsuper or rolbypassrls))";
    if sqlx::query_scalar::<_, bool>(unlimited).bind(app).fetch_one(&mut *connection).await.failed(INSTALLING)? {
        return Err(StoreError::Unusable(format!(
            "--app-role {app} is a superuser or has BYPASSRLS, so it is not limited by row-level security; name another role"
        )));
    }
    let created = make_roles(connection, app, &found.schema).await.map_err(|error| hint(error, app))?;
    let unprotected: Vec<String> = query!("roles/unprotected")
        .try_map(|row: sqlx::postgres::PgRow| row.try_get("name"))
        .fetch_all(&mut *connection)
        .await
        .failed(INSTALLING)?;
    for table in unprotected {
        let mut tries = 1;
        loop {
            match protect(connection, &table).await {
                Err(error) if is_locked(&error) && tries < open::STEP_TRIES => {
                    open::pause(&mut tries, "to protect a table").await;
                }
                done => break done?,
            }
        }
    }
    sqlx::raw_sql(sql!("roles/grants")).execute(&mut *connection).await.failed(INSTALLING)?;
    let left: Vec<String> = query!("roles/unprotected")
        .try_map(|row: sqlx::postgres::PgRow| row.try_get("name"))
        .fetch_all(&mut *connection)
        .await
        .failed(INSTALLING)?;
    if left.is_empty() {
        return Ok(RolesInstalled { created });
    }
    Err(StoreError::Unusable(format!(
        "these tables have policies of their own, which could show rows of other tenants: {}; drop those policies",
        left.join(", ")
    )))
}

fn check_name(app: &str) -> Result<()> {
    let reserved = app.starts_with("pg_") || ["everytick_api", "everytick_engine", "public", "none"].contains(&app);
    if app.is_empty() || app.len() > ROLE_BYTES_MAX || app.contains('\0') || reserved {
        return Err(StoreError::Unusable(format!(
            "--app-role {app:?} cannot be the name of the role as which nodes connect; write a name such as everytick_app, of up to \
             {ROLE_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Returns whether the application's role is new.
async fn make_roles(connection: &mut PgConnection, app: &str, schema: &str) -> sqlx::Result<bool> {
    let exists = |name: &str| {
        sqlx::query_scalar::<_, bool>("select exists (select 1 from pg_roles where rolname = $1)").bind(name.to_owned())
    };
    for role in ["everytick_api", "everytick_engine"] {
        if !exists(role).fetch_one(&mut *connection).await? {
            run(connection, format!("create role {role} nologin")).await?;
        }
    }
    let created = !exists(app).fetch_one(&mut *connection).await?;
    let name = quoted(app);
    if created {
        run(connection, format!("create role {name} login noinherit")).await?;
    }
    let right = "select rolcanlogin and not rolinherit from pg_roles where rolname = $1";
    if !sqlx::query_scalar::<_, bool>(right).bind(app).fetch_one(&mut *connection).await? {
        run(connection, format!("alter role {name} login noinherit")).await?;
    }
    let member = "select count(*) = 2 and not bool_or(pg_has_role($1, oid, 'usage')) from pg_roles \
                   where rolname in ('everytick_api', 'everytick_engine') and pg_has_role($1, oid, 'member')";
    if !sqlx::query_scalar::<_, bool>(member).bind(app).fetch_one(&mut *connection).await? {
        let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::integer")
            .fetch_one(&mut *connection)
            .await?;
        // Since PostgreSQL 16, each membership has its own options.
        let options = if version >= 160_000 { " with inherit false, set true" } else { "" };
        run(connection, format!("grant everytick_api, everytick_engine to {name}{options}")).await?;
    }
    let schema = quoted(schema);
    run(connection, format!("grant usage on schema {schema} to {name}")).await?;
    // Before version 15, every role may create objects in the schema public.
    let creates = "select has_schema_privilege($1, current_schema(), 'create')";
    if sqlx::query_scalar::<_, bool>(creates).bind(app).fetch_one(&mut *connection).await? {
        run(connection, format!("revoke create on schema {schema} from public, {name}")).await?;
    }
    Ok(created)
}

async fn run(connection: &mut PgConnection, text: String) -> sqlx::Result<()> {
    match sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await {
        // Roles belong to the server: another database may be prepared at the same time.
        Err(error) if matches!(super::code(&error).as_deref(), Some("42710" | "23505")) => Ok(()),
        done => done.map(drop),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An owner without CREATEROLE learns what a superuser must do.
fn hint(error: sqlx::Error, app: &str) -> StoreError {
    if super::code(&error).as_deref() != Some("42501") {
        return StoreError::Failed { doing: INSTALLING, source: error.into() };
    }
    let name = quoted(app);
    StoreError::Unusable(format!(
        "the owner may not do this ({error}); let a superuser run: create role everytick_api nologin; create role everytick_engine \
         nologin; create role {name} login noinherit; grant everytick_api, everytick_engine to {name}; then repeat this command"
    ))
}

async fn protect(connection: &mut PgConnection, table: &str) -> Result<()> {
    let begin = format!(
        "begin; set local lock_timeout = {}; set local statement_timeout = 0",
        open::STEP_LOCK_TIMEOUT.as_millis()
    );
    let mut tx = connection.begin_with(AssertSqlSafe(begin)).await.failed(INSTALLING)?;
    // The lock of day tables: none is made while this one changes.
    let done = async {
        query!("setup/migration_lock", open::MIGRATION_LOCK).execute(&mut *tx).await?;
        query!("roles/protect", table).execute(&mut *tx).await
    };
    match done.await {
        Ok(_) => tx.commit().await.failed(INSTALLING),
        Err(error) => {
            tx.rollback().await.failed(INSTALLING)?;
            Err(error).failed(INSTALLING)
        }
    }
}
