//! A client's parser of server-sent events, such as the live log of a run. It does not reconnect.

/// Parser of server-sent events. A chunk may end at any byte.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last byte was a CR. An LF that follows belongs to the same line end.
    after_cr: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Events {
    pub(crate) fn read(&mut self, chunk: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in chunk {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.line_ended(&String::from_utf8_lossy(&line)));
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(*byte);
                }
            }
        }
        events
    }

    fn line_ended(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return self.data.take().map(|data| Event { name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {} // comments only keep the connection alive; ids and retry times are not used
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_parsed_wherever_the_chunks_end() {
        let text = ": hello\n\nevent: output\ndata: a\ndata: é\n\ndata:b\r\n\r\nevent: end\ndata\n\nevent: lonely\n\n";
        let expected = [event("output", "a\né"), event("", "b"), event("end", "")];
        for size in 1..text.len() {
            let mut events = Events::default();
            let read: Vec<Event> = text.as_bytes().chunks(size).flat_map(|chunk| events.read(chunk)).collect();
            assert_eq!(read, expected, "{size}");
        }
    }
}
