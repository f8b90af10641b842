//! The sources of settings and the refusal of invalid ones, from outside.

use std::{fs, net::TcpListener};

use crate::support::{Done, Server, everytick, everytick_command};

/// Runs `job list` and returns the server address from its error message.
fn asked(file: Option<&str>, env: Option<&str>, flag: Option<&str>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = everytick_command(dir.path());
    if let Some(server) = file {
        fs::write(dir.path().join("client.toml"), format!("server = \"{server}\"\n")).unwrap();
        command.args(["--config", "client.toml"]);
    }
    command.args(["job", "list"]);
    command.envs(env.map(|server| ("EVERYTICK_SERVER", server)));
    command.args(flag.map(|server| ["--server", server]).into_iter().flatten());
    let message = Done::from(command.output().unwrap()).failed(5);
    message.split("answers at ").nth(1).unwrap().split(';').next().unwrap().to_owned()
}

#[test]
fn a_flag_overrides_a_variable_and_a_variable_overrides_the_file() {
    // No process listens on these ports: 1 to 3 are reserved.
    let (file, env, flag) = ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3");
    assert_eq!(asked(Some(file), Some(env), Some(flag)), flag);
    assert_eq!(asked(Some(file), Some(env), None), env);
    assert_eq!(asked(Some(file), None, None), file);
}

#[test]
fn the_config_flag_and_variable_choose_the_settings_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("everytick.toml"), "server = \"http://127.0.0.1:1\"\n").unwrap();
    fs::write(dir.path().join("other.toml"), "server = \"http://127.0.0.1:2\"\n").unwrap();
    let run = |command: &mut std::process::Command| Done::from(command.output().unwrap());
    let by_flag = run(everytick_command(dir.path()).args(["--config", "other.toml", "run", "list"])).failed(5);
    assert!(by_flag.contains("127.0.0.1:2"), "{by_flag}");
    let by_env =
        run(everytick_command(dir.path()).args(["run", "list"]).env("EVERYTICK_CONFIG", "other.toml")).failed(5);
    assert!(by_env.contains("127.0.0.1:2"), "{by_env}");
    let missing = run(everytick_command(dir.path()).args(["--config", "no.toml", "run", "list"])).failed(2);
    assert!(missing.contains("could not read no.toml"), "{missing}");
}

/// Another user may have written the file in the working directory. It must not choose the server that receives a token.
#[test]
fn client_keys_of_the_file_in_the_working_directory_are_ignored_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let text = "\nserver = \"http://127.0.0.1:1\"\noutput = \"json\"\nca_file = \"a\"\nclient_cert = \"a\"\nclient_key = \"a\"\nutc = true\n";
    fs::write(dir.path().join("everytick.toml"), text).unwrap();
    let mut command = everytick_command(dir.path());
    let message =
        Done::from(command.args(["--server", "http://127.0.0.1:2", "job", "list"]).output().unwrap()).failed(5);
    assert!(message.contains("answers at http://127.0.0.1:2"), "{message}");
    for (line, key) in (2..).zip(["server", "output", "ca_file", "client_cert", "client_key", "utc"]) {
        let expected = format!("everytick.toml: line {line}: {key} is ignored");
        assert!(message.contains(&expected), "{expected}: {message}");
    }
    let by_name = everytick_command(dir.path()).args(["--config", "everytick.toml", "cron", "next", "@daily"]).output();
    let by_name = Done::from(by_name.unwrap());
    assert!(by_name.code == 0 && by_name.stdout.starts_with('{') && by_name.stderr.is_empty(), "{by_name:?}");
}

#[test]
fn serve_refuses_a_settings_file_of_another_user() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("everytick.toml");
    fs::write(&path, "slots = 0\n").unwrap();
    // Only root can change the owner of a file. As another user, this test checks nothing.
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        return;
    }
    let serve = || Done::from(everytick_command(dir.path()).arg("serve").output().unwrap()).failed(2);
    let refused = serve();
    assert!(refused.contains("everytick.toml: the file belongs to the user with the id 12345"), "{refused}");
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    let accepted = serve();
    assert!(accepted.contains("slots"), "the file is read: {accepted}");
}

#[test]
fn an_unknown_key_is_refused_with_its_name_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("everytick.toml"), "lease = \"15s\"\nlisten_on = \"127.0.0.1:1\"\n").unwrap();
    let message = Done::from(everytick_command(dir.path()).arg("serve").output().unwrap()).failed(2);
    assert!(
        message.contains("everytick.toml") && message.contains("line 2") && message.contains("\"listen_on\""),
        "{message}"
    );
}

#[test]
fn the_settings_file_can_set_the_output_format() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("client.toml"), "output = \"json\"\n").unwrap();
    let cron = ["--config", "client.toml", "cron", "next", "@daily", "-n", "1"];
    let by_file = Done::from(everytick_command(dir.path()).args(cron).output().unwrap()).ok();
    assert!(by_file.starts_with('{'), "{by_file}");
    let by_env = everytick_command(dir.path()).args(cron).env("EVERYTICK_OUTPUT", "table").output().unwrap();
    assert!(Done::from(by_env).ok().starts_with("UTC"));
}

#[test]
fn serve_refuses_unsafe_and_unsupported_settings() {
    for (args, expected) in [
        (["--listen", "0.0.0.0:0"], "--auth required"),
        (["--listen", "nowhere"], "127.0.0.1:8640"),
        (["--roles", "scheduler"], "go together"),
        (["--region", "Europe West"], "not a region"),
        (["--database-url", "mysql://u:hunter2@h/d"], "postgres://user@host/database"),
        (["--lease", "15"], "is not a duration"),
        (["--allow-webhook-range", "10.0.0.0/99"], "10.0.0.0/8"),
        (["--log-level", "loud=="], "log level"),
    ] {
        let message = everytick(&["serve", args[0], args[1]]).failed(2);
        assert!(message.contains(expected) && message.contains(args[0]), "{args:?}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn max_jobs_limits_the_jobs_of_a_tenant() {
    let server = Server::builder().env("EVERYTICK_MAX_JOBS", "2").start();
    let create = |name: &str| server.everytick(&["job", "create", name, "--url", "https://example.org/hook"]);
    create("a").ok();
    create("b").ok();
    let refused = create("c").failed(4);
    assert!(refused.contains("the tenant has 2 jobs, which is its quota"), "{refused}");
    let batch = "{\"name\": \"d\", \"target\": {\"http\": {\"url\": \"https://example.org/hook\"}}}\n";
    let message = server.everytick_with_stdin(&["job", "create", "--batch", "-"], batch).failed(1);
    assert!(message.contains("quota"), "{message}");
    let (dir, ..) = server.stop();
    fs::write(dir.path().join("everytick.toml"), "max_jobs = 3\n").unwrap();
    let server = Server::builder().dir(dir).start();
    server.everytick(&["job", "create", "c", "--url", "https://example.org/hook"]).ok();
    server.everytick(&["job", "create", "d", "--url", "https://example.org/hook"]).failed(4);
    assert!(everytick(&["serve", "--max-jobs", "0"]).failed(2).contains("--max-jobs: 0 is out of range"));
}

#[test]
fn serve_reports_an_address_that_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = everytick(&["serve", "--listen", &address]).failed(1);
    assert!(message.contains(&format!("{address} is in use")), "{message}");
}

#[test]
fn without_a_server_the_client_explains_how_to_start_one_and_exits_with_5() {
    for args in
        [&["job", "list"][..], &["job", "get", "a"], &["run", "list"], &["job", "create", "a", "--url", "http://h/"]]
    {
        let message = everytick(&[&["--server", "http://127.0.0.1:1"], args].concat()).failed(5);
        assert_eq!(
            message,
            "error: no server answers at http://127.0.0.1:1; start one with `everytick serve`, or set another address with --server\n"
        );
    }
}

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    for (args, expected) in [
        (&["job", "get", "../jobs"][..], "is not a name"),
        (&["run", "get", "1"], "\"1\" is too short to find an id; write at least 8 digits"),
        (&["run", "get", "01234567x"], "\"01234567x\""),
        (&["run", "list", "--status", "done"], "waiting, running, succeeded"),
        (&["job", "list", "--limit", "0"], "1 or more"),
        (&["job", "pause", "b", "--all"], "JOB and --all exclude each other"),
        (&["job", "update", "a"], "nothing to change"),
        (&["job", "create", "-f", "no.json"], "could not read no.json"),
        (&["job", "create", "--batch", "no.ndjson"], "could not read no.ndjson"),
        (&["job", "create", "a", "--payload", "{"], "--payload: \"{\" is not JSON"),
        (&["job", "create", "a", "--payload", "@no.json"], "could not read no.json"),
        (&["--server", "localhost", "job", "list"], "--server"),
    ] {
        let message = everytick(args).failed(2);
        assert!(message.contains(expected), "{args:?}: {message}");
    }
}

#[test]
fn a_proxy_is_trusted_only_by_its_address_and_the_server_then_needs_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let grants = "[[proxy_auth.grants]]\ngroup = \"ops\"\ntenant = \"default\"\nrole = \"viewer\"\n";
    let write = |trusted: &str| {
        let path = dir.path().join("proxy.toml");
        fs::write(&path, format!("[proxy_auth]\n{trusted}\n{grants}")).unwrap();
        path.display().to_string()
    };
    for (trusted, part) in [
        ("", "trusted is missing"),
        ("trusted = []", "trusted is missing"),
        ("trusted = [\"0.0.0.0/0\"]", "every address"),
    ] {
        let message = everytick(&["--config", &write(trusted), "serve", "--listen", "127.0.0.1:0"]).failed(2);
        assert!(message.contains("line 1: proxy_auth: ") && message.contains(part), "{message}");
    }
    let me = |server: &Server| {
        let ask = "curl -s -H 'remote-user: ann' -H 'remote-groups: ops' $EVERYTICK_SERVER/api/v1/me";
        serde_json::from_str::<serde_json::Value>(&server.script(ask)).unwrap()
    };
    let config = write("trusted = [\"127.0.0.1\"]");
    let server = Server::builder().flags(&["--config", &config]).start();
    assert_eq!((&me(&server)["actor"], &me(&server)["role"]), (&"proxy:ann".into(), &"viewer".into()));
    assert!(server.everytick(&["job", "list"]).failed(1).contains("everytick login"));
    let config = write("trusted = [\"10.0.0.5\"]");
    let server = Server::builder().flags(&["--config", &config]).start();
    assert_eq!(me(&server)["status"], 401);
    let token = server.everytick(&["token", "create", "x", "--role", "admin"]).failed(1);
    assert!(token.contains("everytick login"), "{token}");
    let metrics = "curl -s -o /dev/null -w '%{http_code}' $EVERYTICK_SERVER/metrics";
    assert_eq!(server.script(metrics), "401");
}
