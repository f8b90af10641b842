//! The server as a process: a log that cannot be written, loops that panic, and protection of its files and memory.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, PipeReader, Read, Write},
    net::TcpStream,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::support::{Done, Server, Sink, everytick_command, wait_for};

/// A server whose stdout and stderr the test chooses. Killed when dropped.
struct Process {
    child: Child,
    url: String,
    dir: TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads until the server prints its address, in the banner or in a JSON log line.
fn listens(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        if let Some((_, rest)) = line.split_once("listening on ") {
            return rest.split(['"', '\n']).next().unwrap().trim().to_owned();
        }
        line.clear();
    }
    panic!("the server ended before it listened");
}

/// Starts a server and reads its address from the pipe. Returns the pipe for the test to keep or close.
fn serve(
    flags: &[&str],
    stdout: Stdio,
    stderr: Stdio,
    mut pipe: BufReader<PipeReader>,
) -> (Process, BufReader<PipeReader>) {
    let dir = tempfile::tempdir().unwrap();
    let child = everytick_command(dir.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--allow-webhook-range", "127.0.0.0/8"])
        .args(flags)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut process = Process { child, url: String::new(), dir };
    process.url = listens(&mut pipe);
    (process, pipe)
}

impl Process {
    fn everytick(&self, args: &[&str]) -> Done {
        everytick_command(self.dir.path()).env("EVERYTICK_SERVER", &self.url).args(args).output().unwrap().into()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("sh").args(["-c", "kill -s $0 $1", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// The status line of `/readyz`.
    fn readyz(&self) -> String {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    /// Creates two jobs that fire every second, one that succeeds and one that fails. Checks that both continue and the server
    /// stays ready.
    fn check_that_jobs_continue(&mut self, sink: &Sink) {
        let (good, bad) = (sink.url(), sink.url().replace("/hook", "/bad"));
        self.everytick(&["job", "create", "good", "--every", "1s", "--url", &good]).ok();
        self.everytick(&["job", "create", "bad", "--every", "1s", "--max-retries", "0", "--url", &bad]).ok();
        for path in ["/hook", "/bad"] {
            wait_for(&format!("6 deliveries to {path}"), || {
                let count = sink.deliveries().iter().filter(|delivery| delivery.path == path).count();
                (count >= 6).then_some(())
            });
        }
        assert!(self.readyz().contains("200"), "{}", self.readyz());
        assert!(self.child.try_wait().unwrap().is_none(), "the server ended");
        let failed = self.everytick(&["run", "list", "--job", "bad", "--status", "failed", "-o", "json"]).json();
        assert!(failed["items"].as_array().unwrap().len() >= 5, "{failed}");
    }
}

fn sink() -> Sink {
    Sink::answering(|delivery| if delivery.path == "/bad" { "500 No".to_owned() } else { "200 OK".to_owned() })
}

fn pipe() -> (BufReader<PipeReader>, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (BufReader::new(reader), writer)
}

#[test]
fn a_server_continues_when_the_reader_of_its_output_has_ended() {
    let (reader, writer) = pipe();
    let (mut process, reader) = serve(&[], writer.try_clone().unwrap().into(), writer.into(), reader);
    drop(reader);
    process.check_that_jobs_continue(&sink());
}

#[test]
fn a_server_continues_with_a_closed_stderr() {
    let (reader, writer) = pipe();
    let (gone, stderr) = pipe();
    drop(gone);
    let (mut process, _reader) = serve(&[], writer.into(), stderr.into(), reader);
    process.check_that_jobs_continue(&sink());
}

#[test]
fn a_server_continues_with_a_closed_stdout() {
    let (reader, writer) = pipe();
    let (gone, stdout) = pipe();
    drop(gone);
    let (mut process, _reader) = serve(&["--log-format", "json"], stdout.into(), writer.into(), reader);
    process.check_that_jobs_continue(&sink());
}

#[test]
fn a_server_continues_when_its_log_is_on_a_full_disk() {
    let (reader, writer) = pipe();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (mut process, _reader) = serve(&[], writer.into(), full.into(), reader);
    process.check_that_jobs_continue(&sink());
}

#[test]
fn a_server_continues_when_its_log_pipe_is_full() {
    let (reader, writer) = pipe();
    let (mut unread, mut stderr) = pipe();
    // A pipe on Linux buffers 64 KiB, so a few lines fill this one.
    stderr.write_all(&[b'.'; 64 * 1024 - 500]).unwrap();
    let (mut process, _reader) = serve(&["--log-level", "trace"], writer.into(), stderr.into(), reader);
    process.check_that_jobs_continue(&sink());
    unread.read_exact(&mut vec![0; 64 * 1024]).unwrap();
}

#[test]
fn a_loop_that_panics_ends_the_process_and_is_named_even_if_the_log_cannot_be_written() {
    let sink = sink();
    let server = Server::builder().flags(&["--allow-webhook-range", "127.0.0.0/8"]).start();
    server.everytick(&["job", "create", "good", "--every", "1s", "--url", &sink.url()]).ok();
    let (dir, ..) = server.stop();
    for name in ["renew", "partitions", "load", "tick", "settle", "claim", "raise", "watchdog", "flows"] {
        let log = dir.path().join("log");
        let run = |stderr: Stdio| {
            let mut child = everytick_command(dir.path())
                .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"])
                .args(["--allow-webhook-range", "127.0.0.0/8", "--drain-timeout", "1s"])
                .env("EVERYTICK_LOOP_FAULT", format!("panic:{name}"))
                .stdout(Stdio::null())
                .stderr(stderr)
                .spawn()
                .unwrap();
            wait_for(&format!("the end after a panic of {name}"), || child.try_wait().unwrap()).code()
        };
        assert_eq!(run(File::create(&log).unwrap().into()), Some(1), "{name}");
        let printed = fs::read_to_string(&log).unwrap();
        assert!(printed.contains("panicked at crates/engine"), "{printed}");
        assert!(
            printed.contains(&format!("error: the node stopped unexpectedly: the loop \"{name}\" panicked")),
            "{printed}"
        );
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(run(full.into()), Some(1), "{name}");
    }
}

/// A full pipe, whose reading end the test keeps open without reading.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while (&writer).write(&[b'.'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn a_loop_that_panics_ends_the_process_even_if_the_log_is_not_read() {
    let (_unread, stderr) = full_pipe();
    let dir = tempfile::tempdir().unwrap();
    let child = everytick_command(dir.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--drain-timeout", "1s"])
        .env("EVERYTICK_LOOP_FAULT", "panic:renew")
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut process = Process { child, url: String::new(), dir };
    let ended = wait_for("the end after a panic", || process.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn a_second_signal_ends_the_process_even_if_the_log_is_not_read() {
    let (reader, writer) = pipe();
    let (_unread, stderr) = full_pipe();
    let (mut process, _reader) =
        serve(&["--enable-shell", "--drain-timeout", "1h"], writer.into(), stderr.into(), reader);
    process.everytick(&["job", "create", "long", "--shell", "sleep 1000"]).ok();
    process.everytick(&["job", "trigger", "long"]).ok();
    wait_for("the run to start", || {
        let runs = process.everytick(&["run", "list", "--status", "claimed", "-o", "json"]).json();
        runs["items"].as_array().is_some_and(|items| !items.is_empty()).then_some(())
    });
    // Two signals at once may arrive as one, so the test sends them until the process ends.
    let ended = wait_for("the end after a second signal", || {
        process.signal("TERM");
        process.child.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(1));
}

/// Runs `serve`, which must refuse to start, and returns its message.
fn refused(dir: &Path) -> String {
    let mut serve = everytick_command(dir);
    serve.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Process { child: serve.spawn().unwrap(), url: String::new(), dir: tempfile::tempdir().unwrap() };
    let status = wait_for("the refusal", || process.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let mut message = String::new();
    process.child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    message
}

#[test]
fn a_data_directory_that_other_users_could_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, elsewhere) = (dir.path().join("everytick-data"), dir.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &data).unwrap();
    assert!(refused(dir.path()).contains("./everytick-data is a symlink"), "{}", refused(dir.path()));
    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(refused(dir.path()).contains("has mode 0770"), "{}", refused(dir.path()));
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    // A user who could create these symlinks would choose which file the server overwrites.
    let victim = dir.path().join("victim");
    for name in ["everytick.db", "everytick.db.lock"] {
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, data.join(name)).unwrap();
        assert!(refused(dir.path()).contains(&format!("{name} is a symlink")), "{}", refused(dir.path()));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(data.join(name)).unwrap();
    }
    fs::write(data.join("everytick.db"), "").unwrap();
    fs::set_permissions(data.join("everytick.db"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refused(dir.path()).contains("everytick.db has mode 0666"), "{}", refused(dir.path()));
}

#[test]
fn only_the_user_of_a_server_can_access_its_files() {
    let server = Server::start();
    let mode = |name: &str| fs::metadata(server.dir().join("data").join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("."), mode("everytick.db"), mode("everytick.db.lock")), (0o700, 0o600, 0o600));
    let lock = server.dir().join("data/everytick.db.lock");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o664)).unwrap();
    let server = Server::builder().dir(server.stop().0).start();
    let lock = fs::metadata(server.dir().join("data/everytick.db.lock")).unwrap();
    assert_eq!(lock.mode() & 0o777, 0o600, "the mode of a lock file from an earlier release is corrected");
}

#[test]
fn a_server_reads_the_database_url_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("url"), "sqlite:data/other.db\n").unwrap();
    let server = Server::builder().dir(dir).env("EVERYTICK_DATABASE_URL_FILE", "url").start();
    assert!(server.banner().contains("data in data/other.db"), "{}", server.banner());
}

/// If other processes of the user may not read the memory of a process, its files in `/proc` belong to root. The files of a
/// root process always belong to root, so a test that runs as root starts the server as the user `nobody`.
#[test]
fn other_processes_of_its_user_cannot_read_the_memory_of_a_server() {
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("everytick");
    fs::copy(env!("CARGO_BIN_EXE_everytick"), &binary).unwrap();
    let mut serve = std::process::Command::new(&binary);
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env_clear().current_dir(dir.path());
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        serve.uid(NOBODY).gid(NOBODY);
    }
    let child = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut process = Process { child, url: String::new(), dir };
    process.url = listens(&mut BufReader::new(process.child.stdout.take().unwrap()));
    assert_eq!(fs::metadata(format!("/proc/{}/environ", process.child.id())).unwrap().uid(), 0);
}
