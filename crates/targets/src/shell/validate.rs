//! Checks a command's definition before it runs. Pure.

use std::path::Path;

use everytick_domain::{
    invalid::Invalid,
    target::{Command, ShellTarget},
};

const ARGUMENTS_MAX: usize = 1_000;
/// Size of the program and its arguments, or of the script. Linux allows 128 KiB for one argument.
const COMMAND_BYTES_MAX: usize = 64 * 1024;
const ENV_MAX: usize = 100;
/// Size of all variable names and values.
const ENV_BYTES_MAX: usize = 64 * 1024;
const WORKDIR_BYTES_MAX: usize = 4_096;
const ENV_PREFIX_RESERVED: &str = "EVERYTICK_";

/// All errors, by field; empty when the definition can be delivered.
pub(super) fn validate(shell: &ShellTarget) -> Vec<Invalid> {
    let mut found = Vec::new();
    if let Err(message) = check_command(&shell.command) {
        found.push(Invalid::new("command", message));
    }
    check_env(shell, &mut found);
    if let Some(Err(message)) = shell.workdir.as_deref().map(check_workdir) {
        found.push(Invalid::new("workdir", message));
    }
    found
}

fn check_command(command: &Command) -> Result<(), String> {
    let parts = match command {
        Command::Argv(argv) => argv.as_slice(),
        Command::Script(script) => std::slice::from_ref(script),
    };
    if parts.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(match command {
            Command::Argv(_) => "is empty; name a program, such as [\"/usr/bin/true\"]".to_owned(),
            Command::Script(_) => "is empty; write a line for sh, such as \"date\"".to_owned(),
        });
    }
    if parts.len() > ARGUMENTS_MAX {
        return Err(format!("has {} arguments; at most {ARGUMENTS_MAX} are allowed", parts.len()));
    }
    let bytes: usize = parts.iter().map(String::len).sum();
    if bytes > COMMAND_BYTES_MAX {
        return Err(format!(
            "has {bytes} bytes; at most {COMMAND_BYTES_MAX} are allowed; put the rest into the payload"
        ));
    }
    no_nul(parts.iter().any(|part| part.contains('\0')))
}

fn check_env(shell: &ShellTarget, found: &mut Vec<Invalid>) {
    if shell.env.len() > ENV_MAX {
        found.push(Invalid::new("env", format!("has {} variables; at most {ENV_MAX} are allowed", shell.env.len())));
        return;
    }
    let bytes: usize = shell.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ENV_BYTES_MAX {
        found.push(Invalid::new("env", format!("has {bytes} bytes; at most {ENV_BYTES_MAX} are allowed")));
        return;
    }
    for (name, value) in &shell.env {
        let checked = if !is_variable(name) {
            Err("is not a variable name; use letters, digits and underscores, and do not start with a digit".to_owned())
        } else if name.starts_with(ENV_PREFIX_RESERVED) {
            Err("is set by everytick itself; choose another name".to_owned())
        } else {
            no_nul(value.contains('\0'))
        };
        if let Err(message) = checked {
            found.push(Invalid::new(format!("env.{name}"), message));
        }
    }
}

fn is_variable(name: &str) -> bool {
    let good = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    !name.is_empty() && name.bytes().all(good) && !name.starts_with(|first: char| first.is_ascii_digit())
}

fn check_workdir(workdir: &str) -> Result<(), String> {
    if !Path::new(workdir).is_absolute() {
        return Err(format!("{workdir:?} is not an absolute path; write one such as \"/srv/reports\""));
    }
    if workdir.len() > WORKDIR_BYTES_MAX {
        return Err(format!("has {} bytes; at most {WORKDIR_BYTES_MAX} are allowed", workdir.len()));
    }
    no_nul(workdir.contains('\0'))
}

fn no_nul(contained: bool) -> Result<(), String> {
    if contained {
        Err("contains a NUL byte, which cannot be passed to a process; remove it".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::target::TargetSpec;

    use super::*;

    fn shell() -> ShellTarget {
        ShellTarget { command: Command::Script("true".to_owned()), env: [].into(), workdir: None }
    }
    fn argv(argv: &[&str]) -> TargetSpec {
        let argv = argv.iter().map(|&part| part.to_owned()).collect();
        TargetSpec::Shell(ShellTarget { command: Command::Argv(argv), ..shell() })
    }
    fn script(script: &str) -> TargetSpec {
        TargetSpec::Shell(ShellTarget { command: Command::Script(script.to_owned()), ..shell() })
    }
    fn env(name: &str, value: &str) -> TargetSpec {
        TargetSpec::Shell(ShellTarget { env: [(name.to_owned(), value.to_owned())].into(), ..shell() })
    }
    fn workdir(workdir: &str) -> TargetSpec {
        TargetSpec::Shell(ShellTarget { workdir: Some(workdir.to_owned()), ..shell() })
    }

    #[test]
    fn valid_definitions_have_no_errors() {
        for spec in [
            argv(&["/bin/echo", "", "two words"]),
            script("echo a | tr a b"),
            env("PATH", "/bin"),
            env("_a1", ""),
            workdir("/srv"),
        ] {
            assert_eq!(crate::validate(&spec), [], "{spec:?}");
        }
    }

    #[test]
    fn each_error_names_its_field() {
        for (spec, field, message) in [
            (argv(&[]), "target.shell.command", "is empty"),
            (argv(&["", "x"]), "target.shell.command", "is empty"),
            (argv(&["echo", "a\0b"]), "target.shell.command", "NUL"),
            (argv(&["x"; ARGUMENTS_MAX + 1]), "target.shell.command", "at most 1000"),
            (argv(&[&"x".repeat(COMMAND_BYTES_MAX), "x"]), "target.shell.command", "at most 65536"),
            (script(" \n"), "target.shell.command", "is empty; write a line for sh"),
            (script("echo \0"), "target.shell.command", "NUL"),
            (env("1A", ""), "target.shell.env.1A", "not a variable name"),
            (env("A=B", ""), "target.shell.env.A=B", "not a variable name"),
            (env("", ""), "target.shell.env.", "not a variable name"),
            (env("EVERYTICK_RUN", ""), "target.shell.env.EVERYTICK_RUN", "set by everytick"),
            (env("A", "\0"), "target.shell.env.A", "NUL"),
            (env("A", &"x".repeat(ENV_BYTES_MAX)), "target.shell.env", "at most 65536"),
            (workdir("srv"), "target.shell.workdir", "absolute"),
            (workdir(""), "target.shell.workdir", "absolute"),
            (workdir("/a\0"), "target.shell.workdir", "NUL"),
            (workdir(&format!("/{}", "x".repeat(WORKDIR_BYTES_MAX))), "target.shell.workdir", "at most 4096"),
        ] {
            let found = crate::validate(&spec);
            assert_eq!(found.len(), 1, "{spec:?}: {found:?}");
            assert_eq!(found[0].field, field);
            assert!(found[0].message.contains(message), "{}", found[0]);
            assert!(!found[0].message.contains("hunter2"), "{}", found[0]);
        }
    }

    #[test]
    fn the_number_of_variables_is_limited() {
        let many = |count: usize| (0..count).map(|n| (format!("n{n}"), String::new())).collect();
        let env = TargetSpec::Shell(ShellTarget { env: many(ENV_MAX + 1), ..shell() });
        assert_eq!(
            crate::validate(&env)[0].to_string(),
            "target.shell.env: has 101 variables; at most 100 are allowed"
        );
    }
}
