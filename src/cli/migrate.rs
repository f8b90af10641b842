//! `everytick migrate`: migrates the schema of a PostgreSQL database as its owner, and prepares the role of the nodes.

use std::path::PathBuf;

use clap::Args;
use everytick_store::PostgresStore;

use crate::{
    config::{DatabaseSource, DatabaseUrl, File, database},
    failure::Failure,
    output,
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick migrate --database-url postgres://owner@db/everytick --app-role everytick_app
  everytick serve --database-url postgres://everytick_app@db/everytick

The owner creates the tables; the nodes connect as the role that --app-role names. Row-level security then separates tenants: a
request reads and writes only rows of its tenant, whatever a statement says. Run this before the nodes of each new release, as the
nodes cannot migrate. Connect directly, without a transaction pooler.
Without --app-role, it only migrates the schema, as each node does that connects as the owner.";

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Migrate this database: postgres://owner@host/database
    #[arg(long, env = "EVERYTICK_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Read the database URL from this file
    #[arg(long, env = "EVERYTICK_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// Prepare this role for the nodes, and separate tenants by row-level security; created if it is missing
    #[arg(long, value_name = "ROLE")]
    app_role: Option<String>,
}

impl Migrate {
    pub(crate) async fn run(self, file: &File) -> anyhow::Result<()> {
        let source = DatabaseSource { url: self.database_url, url_file: self.database_url_file };
        let database = database(source, None, file)?;
        let DatabaseUrl::Postgres(url) = &database else {
            return Err(Failure::usage(format!(
                "--database-url is missing or names the SQLite file {}, which a node migrates when it starts; write \
                 postgres://owner@host/database",
                database.shown()
            ))
            .into());
        };
        let shown = database.shown();
        let Some(role) = self.app_role else {
            PostgresStore::migrate(url).await?;
            output::note_line(&format!("the schema of {shown} is up to date"));
            return Ok(());
        };
        let installed = PostgresStore::install_roles(url, &role).await?;
        output::note_line(&format!(
            "the schema of {shown} is up to date, and row-level security separates tenants for nodes that connect as {role}"
        ));
        if installed.created {
            output::note_line(&format!(
                "the role {role} is new and has no password: set one with `\\password {role}` in psql, or let pg_hba.conf admit it"
            ));
        }
        Ok(())
    }
}
