//! The permission matrix: which role may do what. Each route of the API names one permission.

use super::Role;

/// What a request needs. `docs/reference/access.md` lists the routes of each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Permission {
    /// No credential is needed.
    Public,
    /// Read or change the caller's own credential.
    Own,
    Read,
    Cluster,
    /// Pause, resume, trigger, cancel.
    Control,
    /// Read the names of secrets, which authors of jobs need.
    ReadSecrets,
    /// Create and edit jobs, calendars and queues.
    Write,
    /// Read tokens and the audit trail.
    ReadManage,
    /// Manage tokens and secrets.
    Manage,
    /// Claim and settle runs.
    Work,
    /// Read the metrics of the whole installation.
    ReadInstance,
    /// Manage tenants.
    Instance,
}

impl Permission {
    pub const ALL: [Self; 12] = [
        Self::Public,
        Self::Own,
        Self::Read,
        Self::Cluster,
        Self::Control,
        Self::ReadSecrets,
        Self::Write,
        Self::ReadManage,
        Self::Manage,
        Self::Work,
        Self::ReadInstance,
        Self::Instance,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Own => "self",
            Self::Read => "read",
            Self::Cluster => "cluster",
            Self::Control => "control",
            Self::ReadSecrets | Self::Write => "write",
            Self::ReadManage | Self::Manage => "manage",
            Self::Work => "work",
            Self::ReadInstance | Self::Instance => "instance",
        }
    }

    #[must_use]
    pub const fn granted_to(self, role: Role) -> bool {
        use Role::{Admin, Editor, Instance, Operator, Viewer, Worker};
        match self {
            Self::Public | Self::Own => true,
            Self::Read => matches!(role, Viewer | Operator | Editor | Admin),
            Self::Cluster => !matches!(role, Worker),
            Self::Control => matches!(role, Operator | Editor | Admin),
            Self::ReadSecrets | Self::Write => matches!(role, Editor | Admin),
            Self::ReadManage | Self::Manage => matches!(role, Admin),
            Self::Work => matches!(role, Worker),
            Self::ReadInstance | Self::Instance => matches!(role, Instance),
        }
    }

    /// Whether requests with this permission change nothing but the caller's own credential.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        match self {
            Self::Public
            | Self::Own
            | Self::Read
            | Self::Cluster
            | Self::ReadSecrets
            | Self::ReadManage
            | Self::ReadInstance => true,
            Self::Control | Self::Write | Self::Manage | Self::Work | Self::Instance => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix as a table, one column per role in the order of `Role::ALL`: viewer, operator, editor, admin, worker, instance.
    const MATRIX: [(Permission, &str); 12] = [
        (Permission::Public, "++++++"),
        (Permission::Own, "++++++"),
        (Permission::Read, "++++--"),
        (Permission::Cluster, "++++-+"),
        (Permission::Control, "-+++--"),
        (Permission::ReadSecrets, "--++--"),
        (Permission::Write, "--++--"),
        (Permission::ReadManage, "---+--"),
        (Permission::Manage, "---+--"),
        (Permission::Work, "----+-"),
        (Permission::ReadInstance, "-----+"),
        (Permission::Instance, "-----+"),
    ];

    #[test]
    fn the_matrix_is_the_specified_one() {
        assert_eq!(MATRIX.map(|(permission, _)| permission), Permission::ALL);
        for (permission, row) in MATRIX {
            let granted = Role::ALL.map(|role| if permission.granted_to(role) { '+' } else { '-' });
            assert_eq!(granted.iter().collect::<String>(), row, "{}", permission.name());
        }
    }
}
