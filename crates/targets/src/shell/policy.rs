//! Which programs commands may be. A rule is checked at the definition and again at each delivery, because files change.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use everytick_domain::target::{Command, ShellTarget};
use serde::Deserialize;

use super::deliver::PATH;

/// The operator's rules for programs. The default permits everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandPolicy {
    /// The only programs that commands may start. `None`: every program.
    pub allow: Option<Vec<ProgramPattern>>,
    /// Whether commands may be scripts for `sh -c`.
    pub scripts: bool,
}

impl Default for CommandPolicy {
    fn default() -> Self {
        Self { allow: None, scripts: true }
    }
}

/// Absolute paths: `*` stands for any text within one name, and `/**` at the end for everything below.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct ProgramPattern {
    names: Vec<String>,
    below: bool,
}

impl FromStr for ProgramPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an absolute path without \"..\"; write it like \"/opt/jobs/*\" or \"/opt/jobs/**\""
            )
        };
        let (path, below) = text.strip_suffix("/**").map_or((text, false), |path| (path, true));
        let names = path.strip_prefix('/').or((path.is_empty() && below).then_some("")).ok_or_else(wrong)?;
        let names: Vec<String> = match names {
            "" => Vec::new(),
            names => names.split('/').map(str::to_owned).collect(),
        };
        let is_name = |name: &String| !name.is_empty() && name != "." && name != ".." && !name.contains("**");
        ((below || !names.is_empty()) && names.iter().all(is_name)).then_some(Self { names, below }).ok_or_else(wrong)
    }
}

impl TryFrom<String> for ProgramPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for ProgramPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.names.iter().try_for_each(|name| write!(f, "/{name}"))?;
        f.write_str(if self.below { "/**" } else { "" })
    }
}

impl ProgramPattern {
    fn matches(&self, path: &Path) -> bool {
        let Some(names) = names_of(path) else { return false };
        let fits = names.len() == self.names.len() || (self.below && names.len() > self.names.len());
        fits && self.names.iter().zip(names).all(|(pattern, name)| name_matches(pattern, name))
    }
}

/// The names of an absolute path without `.` and `..`.
fn names_of(path: &Path) -> Option<Vec<&str>> {
    let mut parts = path.components();
    (parts.next() == Some(Component::RootDir)).then_some(())?;
    parts
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect()
}

/// `*` stands for any text. The parts between the stars are searched from the left, and the last one at the end.
fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = rest.split('*').collect();
    let Some((last, middle)) = parts.split_last() else { return true };
    for part in middle {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.len() >= last.len() && left.ends_with(last)
}

/// Variables that make an allowed program load or run other code.
const LOADERS: [&str; 36] = [
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "GCONV_PATH",
    "NLSPATH",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "RUBYOPT",
    "RUBYLIB",
    "NODE_OPTIONS",
    "NODE_PATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "PERLLIB",
    "PYTHONUSERBASE",
    "LUA_INIT",
    "ZDOTDIR",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_PROFILE_USER",
    "LESSOPEN",
    "PAGER",
    "EDITOR",
    "MAKEFLAGS",
    "HOME",
];
const LOADER_PREFIXES: [&str; 3] = ["LD_", "BASH_FUNC_", "GIT_"];

impl CommandPolicy {
    /// The field of a definition that the operator does not permit, and why. A program that does not exist on this node is
    /// judged by its path: another node may run the command.
    pub(super) fn refusal(&self, what: &ShellTarget) -> Option<(String, String)> {
        self.check(what, false).err()
    }

    /// The file to start; `None` if every program is allowed. The check is for the file itself, behind all symlinks.
    pub(super) fn program(&self, what: &ShellTarget) -> Result<Option<PathBuf>, String> {
        self.check(what, true).map_err(|(field, why)| format!("{field}: {why}"))
    }

    fn check(&self, what: &ShellTarget, must_exist: bool) -> Result<Option<PathBuf>, (String, String)> {
        let command = |why: String| ("command".to_owned(), why);
        if !self.scripts && matches!(what.command, Command::Script(_)) {
            let why = "is a script, which the operator does not allow ([shell] scripts); write argv with a program";
            return Err(command(why.to_owned()));
        }
        let Some(allow) = &self.allow else { return Ok(None) };
        if let Some(name) = what.env.keys().find(|name| is_loader(name)) {
            let why = "can make an allowed program run other code, and the operator limits programs ([shell] allow)";
            return Err((format!("env.{name}"), why.to_owned()));
        }
        let Command::Argv(argv) = &what.command else { return Ok(None) };
        let named = argv.first().map_or("", String::as_str);
        let real = match found(named, what.workdir.as_deref()) {
            Some(real) => real,
            None if !must_exist && named.starts_with('/') => PathBuf::from(named),
            None => return Err(command(format!("{named:?} does not exist on this node; write its whole path"))),
        };
        if allow.iter().any(|pattern| pattern.matches(&real)) {
            return Ok(Some(real));
        }
        let allowed = allow.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let is = if real == Path::new(named) { String::new() } else { format!(" is {}, which", real.display()) };
        Err(command(format!("{named:?}{is} is not a program that the operator allows; allowed are {allowed}")))
    }
}

fn is_loader(name: &str) -> bool {
    LOADERS.contains(&name) || LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The file that a command starts, behind all symlinks.
fn found(named: &str, workdir: Option<&str>) -> Option<PathBuf> {
    if named.contains('/') {
        return Path::new(workdir.unwrap_or("/")).join(named).canonicalize().ok();
    }
    let candidates = PATH.split(':').map(|folder| Path::new(folder).join(named));
    candidates.filter_map(|path| path.canonicalize().ok()).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str]) -> CommandPolicy {
        CommandPolicy { allow: Some(allow.iter().map(|text| text.parse().unwrap()).collect()), scripts: false }
    }

    fn argv(program: &str) -> ShellTarget {
        ShellTarget { command: Command::Argv(vec![program.to_owned()]), env: [].into(), workdir: None }
    }

    #[test]
    fn a_pattern_matches_names_of_its_own_depth_or_everything_below() {
        for (pattern, path, expected) in [
            ("/opt/jobs/*", "/opt/jobs/a", true),
            ("/opt/jobs/*", "/opt/jobs/a/b", false),
            ("/opt/jobs/*", "/opt/jobs", false),
            ("/opt/jobs/**", "/opt/jobs/a/b", true),
            ("/opt/jobs/**", "/opt/jobs", true),
            ("/opt/jobs/**", "/opt/jobsx/a", false),
            ("/**", "/bin/sh", true),
            ("/opt/*/run-*.sh", "/opt/x/run-1.sh", true),
            ("/opt/*/run-*.sh", "/opt/x/run-1.sh.bak", false),
            ("/opt/a*b*c", "/opt/aXbXc", true),
            ("/opt/a*b*c", "/opt/abc", true),
            ("/opt/a*b*c", "/opt/acb", false),
            ("/opt/a*a", "/opt/a", false),
            ("/usr/bin/true", "/usr/bin/true", true),
            ("/opt/jobs/*", "/opt/jobs/../../bin/sh", false),
        ] {
            let matches = pattern.parse::<ProgramPattern>().unwrap().matches(Path::new(path));
            assert_eq!(matches, expected, "{pattern} {path}");
            assert_eq!(pattern.parse::<ProgramPattern>().unwrap().to_string(), pattern);
        }
        for wrong in ["", "/", "opt/*", "/opt/../bin", "/opt//a", "/opt/**/a", "/opt/x**"] {
            assert!(wrong.parse::<ProgramPattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_program_is_judged_by_its_file_behind_symlinks() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let jobs = dir.join("jobs");
        std::fs::create_dir(&jobs).unwrap();
        std::fs::write(jobs.join("mine"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", jobs.join("shell")).unwrap();
        let policy = policy(&[&format!("{}/*", jobs.display())]);
        let path = |name: &str| jobs.join(name).display().to_string();
        assert_eq!(policy.program(&argv(&path("mine"))), Ok(Some(jobs.join("mine"))));
        for program in [path("shell"), path("../../bin/sh"), "/bin/sh".to_owned(), "sh".to_owned()] {
            let (field, why) = policy.refusal(&argv(&program)).unwrap();
            assert!(field == "command" && why.contains("not a program that the operator allows"), "{program}: {why}");
            assert!(policy.program(&argv(&program)).is_err());
        }
        // Another node may have the file.
        assert_eq!(policy.refusal(&argv(&path("later"))), None);
        assert!(policy.program(&argv(&path("later"))).unwrap_err().contains("does not exist"));
        assert!(policy.refusal(&argv("nosuchprogram")).unwrap().1.contains("does not exist"));
        let relative = ShellTarget { workdir: Some(jobs.display().to_string()), ..argv("./mine") };
        assert_eq!(policy.refusal(&relative), None);
    }

    #[test]
    fn scripts_and_variables_that_load_code_are_refused_with_the_programs() {
        let script = ShellTarget { command: Command::Script("true".to_owned()), ..argv("") };
        assert!(policy(&["/bin/*"]).refusal(&script).unwrap().1.contains("scripts"));
        assert_eq!(CommandPolicy::default().refusal(&script), None);
        let with = |name: &str| ShellTarget { env: [(name.to_owned(), String::new())].into(), ..argv("/opt/a") };
        for name in ["LD_PRELOAD", "BASH_ENV", "PATH", "BASH_FUNC_ls%%"] {
            assert_eq!(policy(&["/opt/*"]).refusal(&with(name)).unwrap().0, format!("env.{name}"));
            assert_eq!(CommandPolicy::default().refusal(&with(name)), None);
        }
        assert_eq!(policy(&["/opt/*"]).refusal(&with("REPORT")), None);
    }
}
