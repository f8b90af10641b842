//! `everytick access check`: a sample deployment passes, and each weakness of it is named with what to do.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ca, Done, Server, everytick_command, with_stdin};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn write(dir: &Path, name: &str, text: &str, to: u32) {
    fs::write(dir.join(name), text).unwrap();
    mode(&dir.join(name), to);
}

const SETTINGS: &str = "data_dir = \"data\"\nauth = \"required\"\ninline_secrets = \"refuse\"\n\
                        secret_key_files = [\"secret.key\"]\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n";

/// A hardened installation: settings, keys, a certificate, a token that expires, and a secret.
fn deployment() -> TempDir {
    with_token().0
}

/// The same, and its token.
fn with_token() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let pair = Ca::new("servers").issue("server", &["localhost"]);
    write(at, "cert.pem", &pair.cert, 0o644);
    write(at, "key.pem", &pair.key, 0o600);
    write(at, "everytick.toml", SETTINGS, 0o644);
    let run = |args: &[&str]| Done::from(everytick_command(at).args(args).output().unwrap());
    run(&["secret", "keygen", "--file", "secret.key"]).ok();
    let mut folder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700).create(at.join("data")).unwrap();
    let created = run(&["token", "create", "first", "--role", "admin", "--data-dir", "data"]).ok();
    let token = created.split_whitespace().find(|word| word.starts_with("etk_")).unwrap().to_owned();
    (dir, token)
}

fn check(dir: &Path, flags: &[&str]) -> Done {
    everytick_command(dir).args(["access", "check"]).args(flags).output().unwrap().into()
}

/// The message of the first finding of this check with this level.
fn finding(dir: &Path, level: &str, named: &str) -> String {
    let done = check(dir, &["-o", "json"]);
    assert_eq!(done.code, i32::from(done.stdout.contains("\"level\":\"fail\"")), "{done:?}");
    let all: Value = serde_json::from_str(&done.stdout).unwrap();
    let found = all["checks"].as_array().unwrap().iter().find(|one| one["level"] == level && one["check"] == named);
    found.unwrap_or_else(|| panic!("no {level} {named}: {}", done.stdout))["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_hardened_deployment_passes() {
    let dir = deployment();
    let stopped = check(dir.path(), &[]).ok();
    for line in [
        "ok    settings file: everytick.toml has mode 0644\n",
        "ok    settings: complete and valid\n",
        "ok    auth: every request needs a credential\n",
        "ok    tls key: key.pem has mode 0600\n",
        "ok    data directory: data has mode 0700\n",
        "ok    database file: data/everytick.db has mode 0600\n",
        "ok    keys: secret.key has mode 0600\n",
        "ok    shell: jobs cannot run commands\n",
        "ok    tokens without expiry: every token expires\n",
        "ok    roles: 1 of 1 tokens have the role admin or instance\n",
    ] {
        assert!(stopped.contains(line), "{line}: {stopped}");
    }
    assert!(!stopped.contains("fail") && !stopped.contains("warn"), "{stopped}");
    let server = Server::builder().dir(dir).start();
    // Only one process opens a SQLite file.
    let running = check(server.dir(), &[]).ok();
    assert!(running.contains("warn  database: keys and tokens were not checked: "), "{running}");
}

#[test]
fn each_weakness_is_named_with_what_to_do() {
    let dir = deployment();
    let at = dir.path();
    let restore = || {
        write(at, "everytick.toml", SETTINGS, 0o644);
        for (file, to) in [("key.pem", 0o600), ("secret.key", 0o600), ("data", 0o700), ("data/everytick.db", 0o600)] {
            mode(&at.join(file), to);
        }
    };
    for (file, to, level, named, expected) in [
        ("secret.key", 0o644, "fail", "keys", "chmod go-rwx secret.key"),
        ("key.pem", 0o640, "fail", "tls key", "chmod go-rwx key.pem"),
        ("data", 0o770, "fail", "data directory", "chmod go-w data"),
        ("data", 0o755, "warn", "data directory", "chmod go-rwx data"),
        ("data/everytick.db", 0o644, "fail", "database file", "chmod go-rwx data/everytick.db"),
        ("everytick.toml", 0o666, "fail", "settings file", "chmod go-w everytick.toml"),
    ] {
        mode(&at.join(file), to);
        let message = finding(at, level, named);
        assert!(message.contains(expected), "{message}");
        restore();
    }
    for (from, to, level, named, expected) in [
        ("auth = \"required\"\n", "", "warn", "auth", "write auth = \"required\""),
        (
            "auth",
            "allow_tokens_without_expiry = true\nauth",
            "warn",
            "lifetimes",
            "allow_tokens_without_expiry = false",
        ),
        ("inline_secrets = \"refuse\"\n", "", "warn", "credentials of jobs", "import-inline"),
        ("secret_key_files = [\"secret.key\"]\n", "", "warn", "keys", "secret keygen"),
        ("auth", "enable_shell = true\nauth", "fail", "shell", "write user in [shell]"),
        ("auth", "slots = 0\nauth", "fail", "settings", "slots"),
        (
            "tls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n",
            "listen = \"0.0.0.0:1\"\npublic_url = \"https://h\"\ninsecure_http = true\n",
            "fail",
            "tls",
            "write tls_cert and tls_key",
        ),
    ] {
        write(at, "everytick.toml", &SETTINGS.replacen(from, to, 1), 0o644);
        let message = finding(at, level, named);
        assert!(message.contains(expected), "{message}");
        restore();
    }
    symlink(at.join("key.pem"), at.join("link.pem")).unwrap();
    write(at, "everytick.toml", &SETTINGS.replace("key.pem", "link.pem"), 0o644);
    assert!(finding(at, "warn", "tls key").contains("is a symlink"));
    let expired = Ca::new("servers").issue_expired("server", &["localhost"]);
    write(at, "cert.pem", &expired.cert, 0o644);
    write(at, "key.pem", &expired.key, 0o600);
    restore();
    assert!(finding(at, "fail", "tls").contains("has expired"));
}

#[test]
fn tokens_without_expiry_and_keys_without_a_file_are_named() {
    let (dir, token) = with_token();
    let tls = "tls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n";
    let settings = SETTINGS.replace(tls, "allow_tokens_without_expiry = true\n");
    write(dir.path(), "everytick.toml", &settings, 0o644);
    let server = Server::builder().dir(dir).start();
    let run = |args: &[&str]| with_stdin(server.command(args).env("EVERYTICK_TOKEN", &token), "hunter2-hunter2");
    run(&["token", "create", "eternal", "--role", "viewer", "--expires", "never"]).ok();
    run(&["secret", "set", "api", "--host", "example.org"]).ok();
    let (dir, ..) = server.stop();
    let at = dir.path();
    let text = check(at, &[]).ok();
    for line in [
        "warn  tokens without expiry: eternal never expire; rotate or revoke them\n",
        "ok    keys: the files have all 1 keys of the database\n",
        "ok    roles: 1 of 2 tokens have the role admin or instance\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    fs::remove_file(at.join("secret.key")).unwrap();
    Done::from(everytick_command(at).args(["secret", "keygen", "--file", "secret.key"]).output().unwrap()).ok();
    let done = check(at, &[]);
    assert!(done.code == 1 && done.stdout.contains("fail  keys: no file has the key "), "{done:?}");
}
