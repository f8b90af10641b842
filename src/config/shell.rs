//! The section `[shell]` of `everytick.toml`: which commands may run, as which user, and within which limits. It has no flags: a
//! change of it needs the same rights as the file.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use everytick_targets::{Cgroup, CgroupPlace, CommandPolicy, CommandUser, Isolation, ProcessLimits, ProgramPattern};
use serde::Deserialize;

const NPROC_DEFAULT: u64 = 256;
const NOFILE_DEFAULT: u64 = 1_024;
const FSIZE_DEFAULT: u64 = 1 << 30;
/// A smaller address space does not even start a shell.
const MEMORY_MIN: u64 = 16 << 20;
const CPU_MAX_PERCENT: u32 = 100_000;
const GROUPS_MAX: usize = 64;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ShellKeys {
    user: Option<NameOrId>,
    groups: Vec<NameOrId>,
    allow: Option<Vec<ProgramPattern>>,
    scripts: Option<bool>,
    home: Option<PathBuf>,
    limits: LimitKeys,
    cgroup: Option<PathBuf>,
    systemd_run: bool,
    memory_max: Option<Size>,
    pids_max: Option<u64>,
    cpu_max: Option<Percent>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitKeys {
    nproc: Option<u64>,
    nofile: Option<u64>,
    fsize: Option<Size>,
    memory: Option<Size>,
    cpu: Option<u64>,
    core: Option<Size>,
}

/// A name, or a number without quotes or with them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum NameOrId {
    Id(u32),
    Name(String),
}

impl NameOrId {
    fn id(&self) -> Option<u32> {
        match self {
            Self::Id(id) => Some(*id),
            Self::Name(name) => name.parse().ok(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Name(name) => name.clone(),
        }
    }
}

/// A number of bytes: `1GiB`, `512MiB`, `64KiB`, or a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "Written")]
struct Size(u64);

/// A share of CPU time: `150%` is one and a half CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Percent(u32);

/// As a file has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl TryFrom<Written> for Size {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
        let (number, shift) =
            units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
        let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| format!("{text:?} is not a size; write it like \"1GiB\", \"512MiB\" or 65536"))
    }
}

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
        let percent = percent.filter(|percent| (1..=CPU_MAX_PERCENT).contains(percent));
        percent.map(Self).ok_or_else(|| {
            format!("{text:?} is not a share of CPU time; write it like \"150%\" for one and a half CPUs")
        })
    }
}

/// The rules for commands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shell {
    pub(crate) policy: CommandPolicy,
    pub(crate) isolation: Isolation,
}

impl TryFrom<ShellKeys> for Shell {
    type Error = String;

    fn try_from(keys: ShellKeys) -> Result<Self, String> {
        let accounts = Accounts::of_this_host();
        keys.read(&accounts)
    }
}

impl ShellKeys {
    fn read(self, accounts: &Accounts) -> Result<Shell, String> {
        if self.user.is_none() && !self.groups.is_empty() {
            return Err("groups has no effect without user; write the user of commands".to_owned());
        }
        if self.groups.len() > GROUPS_MAX {
            return Err(format!("groups: has {} groups; at most {GROUPS_MAX} are allowed", self.groups.len()));
        }
        let home = self.home.clone();
        if let Some(home) = home.as_ref().filter(|home| !home.is_absolute()) {
            return Err(format!("home: {} is not an absolute path", home.display()));
        }
        let user = self.user.as_ref().map(|user| accounts.user(user, &self.groups)).transpose()?;
        let limits = self.limits.read(user.is_some())?;
        // Commands as scripts could start every program.
        let scripts = self.scripts.unwrap_or(self.allow.is_none());
        let cgroup = self.cgroup()?;
        let policy = CommandPolicy { allow: self.allow, scripts };
        Ok(Shell { policy, isolation: Isolation { user, home, limits, cgroup } })
    }

    fn cgroup(&self) -> Result<Option<Cgroup>, String> {
        let place = match (&self.cgroup, self.systemd_run) {
            (Some(_), true) => return Err("cgroup and systemd_run exclude each other; write one of them".to_owned()),
            (Some(folder), false) if !folder.is_absolute() => {
                return Err(format!(
                    "cgroup: {} is not an absolute path; write one such as \"/sys/fs/cgroup/everytick\"",
                    folder.display()
                ));
            }
            (Some(folder), false) => CgroupPlace::Directory(folder.clone()),
            (None, true) => CgroupPlace::SystemdRun,
            (None, false) => {
                let limits = [
                    ("memory_max", self.memory_max.is_some()),
                    ("pids_max", self.pids_max.is_some()),
                    ("cpu_max", self.cpu_max.is_some()),
                ];
                return match limits.iter().find(|(_, is_set)| *is_set) {
                    Some((key, _)) => Err(format!("{key} has no effect without cgroup or systemd_run = true")),
                    None => Ok(None),
                };
            }
        };
        let (memory_max, cpu_max) = (self.memory_max.map(|size| size.0), self.cpu_max.map(|percent| percent.0));
        Ok(Some(Cgroup { place, memory_max, pids_max: self.pids_max, cpu_max }))
    }
}

impl LimitKeys {
    /// 0 means no limit, except for core files. The defaults apply to commands of another user: `nproc` counts all processes of a
    /// user, so on the server's own user it would count the server.
    fn read(&self, with_user: bool) -> Result<ProcessLimits, String> {
        let or = |given: Option<u64>, default: u64| match given {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => with_user.then_some(default),
        };
        let given = |given: Option<u64>| given.filter(|limit| *limit > 0);
        let size = |size: Option<Size>| size.map(|size| size.0);
        let memory = given(size(self.memory));
        if memory.is_some_and(|bytes| bytes < MEMORY_MIN) {
            return Err("limits.memory: is below 16MiB, with which no command starts".to_owned());
        }
        Ok(ProcessLimits {
            nproc: or(self.nproc, NPROC_DEFAULT),
            nofile: or(self.nofile, NOFILE_DEFAULT),
            fsize: or(size(self.fsize), FSIZE_DEFAULT),
            memory,
            cpu: given(self.cpu),
            core: size(self.core).or(with_user.then_some(0)),
        })
    }
}

/// The users and groups of this host.
struct Accounts {
    passwd: String,
    group: String,
    /// The user of this process.
    own: u32,
}

impl Accounts {
    fn of_this_host() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let own = rustix::process::geteuid().as_raw();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group"), own }
    }

    fn user(&self, named: &NameOrId, groups: &[NameOrId]) -> Result<CommandUser, String> {
        let text = named.text();
        let groups = groups.iter().map(|group| self.group(group)).collect::<Result<Vec<u32>, String>>()?;
        let entries = self.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut entries = entries.filter(|entry| entry.len() >= 6);
        let entry = entries.find(|entry| entry[0] == text || entry[2].parse().ok() == named.id());
        let user = match (entry, named.id(), groups.split_first()) {
            (Some(entry), ..) => {
                let (Ok(uid), Ok(gid)) = (entry[2].parse(), entry[3].parse()) else {
                    return Err(format!("user: the line of {text:?} in /etc/passwd has no ids"));
                };
                CommandUser { name: entry[0].to_owned(), uid, gid, groups, home: PathBuf::from(entry[5]) }
            }
            (None, Some(uid), Some((gid, others))) => {
                CommandUser { name: text.clone(), uid, gid: *gid, groups: others.to_vec(), home: PathBuf::from("/") }
            }
            (None, Some(_), None) => {
                return Err(format!("user: {text} is not in /etc/passwd; write its group as the first of groups"));
            }
            (None, None, _) => {
                return Err(format!(
                    "user: {text:?} is not a user of this host; write a name of /etc/passwd or a number"
                ));
            }
        };
        if user.uid == 0 {
            return Err(format!("user: {text:?} is root, who may do everything; create a user for commands"));
        }
        if user.uid == self.own {
            return Err(format!(
                "user: {text:?} is the user of the server itself; create another one for commands, or leave the key out"
            ));
        }
        Ok(user)
    }

    fn group(&self, named: &NameOrId) -> Result<u32, String> {
        let text = named.text();
        let mut entries = self.group.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = entries.find(|entry| entry.len() >= 3 && entry[0] == text);
        let found = entry.and_then(|entry| entry[2].parse().ok()).or(named.id());
        match found {
            Some(0) => Err(format!("groups: {text:?} is the group of root; leave it out")),
            Some(id) => Ok(id),
            None => {
                Err(format!("groups: {text:?} is not a group of this host; write a name of /etc/group or a number"))
            }
        }
    }
}

impl Shell {
    /// The home of commands, if it does not exist on this host.
    pub(crate) fn missing_home(&self) -> Option<&Path> {
        let Isolation { home, user, .. } = &self.isolation;
        let home = home.as_deref().or(user.as_ref().map(|user| user.home.as_path()))?;
        (!home.is_dir()).then_some(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        let passwd =
            "root:x:0:0::/root:/bin/sh\nserver:x:900:900::/srv:/bin/sh\njobs:x:901:902:Jobs:/home/jobs:/bin/sh\n";
        Accounts { passwd: passwd.to_owned(), group: "root:x:0:\nbackup:x:34:jobs\n".to_owned(), own: 900 }
    }

    fn read(text: &str) -> Result<Shell, String> {
        let keys: ShellKeys = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        keys.read(&accounts())
    }

    #[test]
    fn an_empty_section_changes_nothing() {
        assert_eq!(read("").unwrap(), Shell::default());
    }

    #[test]
    fn a_user_has_its_ids_and_the_default_limits() {
        let shell = read("user = \"jobs\"\ngroups = [\"backup\", 7]").unwrap();
        let user = CommandUser {
            name: "jobs".to_owned(),
            uid: 901,
            gid: 902,
            groups: vec![34, 7],
            home: PathBuf::from("/home/jobs"),
        };
        assert_eq!(shell.isolation.user, Some(user));
        let limits = ProcessLimits {
            nproc: Some(256),
            nofile: Some(1024),
            fsize: Some(1 << 30),
            memory: None,
            cpu: None,
            core: Some(0),
        };
        assert_eq!(shell.isolation.limits, limits);
        let free = read("user = 901\nlimits = { nproc = 0, fsize = \"2GiB\", memory = \"64MiB\", cpu = 9 }").unwrap();
        let expected =
            ProcessLimits { nproc: None, fsize: Some(2 << 30), memory: Some(64 << 20), cpu: Some(9), ..limits };
        assert_eq!(free.isolation.limits, expected);
        let other = read("user = 1234\ngroups = [55, 56]").unwrap().isolation.user.unwrap();
        assert_eq!((other.uid, other.gid, other.groups), (1234, 55, vec![56]));
        assert_eq!(
            read("limits = { nofile = 9 }").unwrap().isolation.limits,
            ProcessLimits { nofile: Some(9), ..ProcessLimits::default() }
        );
    }

    #[test]
    fn allowed_programs_exclude_scripts_unless_the_operator_says_otherwise() {
        assert!(read("").unwrap().policy.scripts);
        assert!(!read("allow = [\"/opt/jobs/*\"]").unwrap().policy.scripts);
        assert!(read("allow = [\"/opt/jobs/*\"]\nscripts = true").unwrap().policy.scripts);
        assert!(!read("scripts = false").unwrap().policy.scripts);
    }

    #[test]
    fn a_cgroup_has_limits_for_all_processes_of_a_command() {
        let shell =
            read("cgroup = \"/sys/fs/cgroup/x\"\nmemory_max = \"1GiB\"\npids_max = 9\ncpu_max = \"150%\"").unwrap();
        let place = CgroupPlace::Directory("/sys/fs/cgroup/x".into());
        let expected = Cgroup { place, memory_max: Some(1 << 30), pids_max: Some(9), cpu_max: Some(150) };
        assert_eq!(shell.isolation.cgroup, Some(expected));
        let scope = read("systemd_run = true").unwrap().isolation.cgroup.unwrap();
        assert_eq!(scope.place, CgroupPlace::SystemdRun);
    }

    #[test]
    fn a_wrong_value_is_named_with_what_would_be_right() {
        for (text, expected) in [
            ("user = \"nosuch\"", "\"nosuch\" is not a user of this host"),
            ("user = 4711", "4711 is not in /etc/passwd"),
            ("user = \"root\"", "is root"),
            ("user = \"server\"", "is the user of the server itself"),
            ("groups = [\"backup\"]", "groups has no effect without user"),
            ("user = \"jobs\"\ngroups = [\"nosuch\"]", "\"nosuch\" is not a group of this host"),
            ("user = \"jobs\"\ngroups = [\"root\"]", "is the group of root"),
            ("home = \"jobs\"", "not an absolute path"),
            ("allow = [\"jobs/*\"]", "is not an absolute path"),
            ("limits = { fsize = \"1GB\" }", "\"1GB\" is not a size"),
            ("limits = { memory = \"1MiB\" }", "below 16MiB"),
            ("pids_max = 7", "pids_max has no effect without cgroup"),
            ("cgroup = \"/a\"\nsystemd_run = true", "exclude each other"),
            ("systemd_run = true\ncpu_max = \"2\"", "write it like \"150%\""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
