//! A receiver of webhooks that records each request and answers as the test defines.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::wait_for;

/// One received request. Header names are in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

type Answer = dyn Fn(&Delivery) -> String + Send + Sync;

/// Listens until it is dropped. Servers that deliver here need `--allow-webhook-range 127.0.0.0/8`.
#[derive(Debug)]
pub(crate) struct Sink {
    address: SocketAddr,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    closed: Arc<AtomicBool>,
}

impl Sink {
    /// Answers every request with 200.
    pub(crate) fn start() -> Self {
        Self::answering(|_| "200 OK".to_owned())
    }

    /// Answers with a status line and, after newlines, headers: `"503 Busy\r\nretry-after: 1"`.
    pub(crate) fn answering(answer: impl Fn(&Delivery) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (deliveries, closed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let answer: Arc<Answer> = Arc::new(answer);
        thread::spawn({
            let (deliveries, closed) = (Arc::clone(&deliveries), Arc::clone(&closed));
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if closed.load(Ordering::SeqCst) {
                        return;
                    }
                    let (deliveries, answer) = (Arc::clone(&deliveries), Arc::clone(&answer));
                    // Ignore a broken connection: the sender reports it.
                    thread::spawn(move || serve(stream, &deliveries, answer.as_ref()));
                }
            }
        });
        Self { address, deliveries, closed }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().unwrap().clone()
    }

    /// Waits until at least `count` requests have arrived, and returns all.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Delivery> {
        wait_for(&format!("{count} deliveries"), || Some(self.deliveries()).filter(|all| all.len() >= count))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the listener, which then ends
    }
}

/// Serves all requests of one connection (keep-alive), as a real receiver does.
fn serve(stream: TcpStream, deliveries: &Mutex<Vec<Delivery>>, answer: &Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(delivery) = read(&mut reader)? {
        let answer = answer(&delivery);
        deliveries.lock().unwrap().push(delivery);
        write!(writer, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n")?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> io::Result<Option<Delivery>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(ToOwned::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Delivery { method, path, headers, body }))
}
