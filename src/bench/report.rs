//! The result of a benchmark, printed as one JSON object or as a table. Fields keep their order.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use crate::output::{Output, Text};

#[derive(Debug)]
pub(super) struct Report {
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    value: Value,
    shown: String,
}

impl Report {
    pub(super) fn new(bench: &'static str) -> Self {
        Self { fields: Vec::new() }.text("bench", bench)
    }

    pub(super) fn text(self, name: &'static str, value: &str) -> Self {
        self.field(name, value.into(), value.to_owned())
    }

    pub(super) fn count(self, name: &'static str, value: u64) -> Self {
        self.field(name, value.into(), grouped(value))
    }

    pub(super) fn flag(self, name: &'static str, value: bool) -> Self {
        self.field(name, value.into(), if value { "yes" } else { "no" }.to_owned())
    }

    /// A rate per second.
    pub(super) fn rate(self, name: &'static str, value: f64) -> Self {
        self.field(name, rounded(value, 1.0), format!("{}/s", grouped(value.max(0.0) as u64)))
    }

    pub(super) fn ratio(self, name: &'static str, value: f64) -> Self {
        self.field(name, rounded(value, 1_000.0), format!("{value:.2}"))
    }

    pub(super) fn millis(self, name: &'static str, value: f64) -> Self {
        self.field(name, rounded(value, 10.0), format!("{value:.1} ms"))
    }

    pub(super) fn bytes(self, name: &'static str, value: f64) -> Self {
        self.field(name, rounded(value, 1.0), format!("{} B", grouped(value.max(0.0) as u64)))
    }

    /// A list of results under one name.
    pub(super) fn list(mut self, name: &'static str, items: Vec<Self>) -> Self {
        let value = items.iter().map(|item| serde_json::to_value(item).unwrap_or_default()).collect();
        let shown = |item: &Self| item.fields.iter().map(|field| field.shown.clone()).collect::<Vec<_>>().join("  ");
        let lines: Vec<String> = items.iter().map(shown).collect();
        self.fields.push(Field { name, value, shown: lines.join("\n") });
        self
    }

    pub(super) fn item() -> Self {
        Self { fields: Vec::new() }
    }

    fn field(mut self, name: &'static str, value: Value, shown: String) -> Self {
        self.fields.push(Field { name, value, shown });
        self
    }

    pub(super) fn print(&self, out: Output) -> anyhow::Result<()> {
        if out.is_json() {
            return Ok(out.json(self)?);
        }
        let facts = self.fields.iter().map(|field| (field.name, Text::plain(field.shown.clone()))).collect();
        Ok(out.facts(facts)?)
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.fields.len()))?;
        for field in &self.fields {
            map.serialize_entry(field.name, &field.value)?;
        }
        map.end()
    }
}

fn rounded(value: f64, parts: f64) -> Value {
    let value = (value * parts).round() / parts;
    if parts == 1.0 { (value as i64).into() } else { value.into() }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_object_with_fields_in_order() {
        let report = Report::new("tick").count("jobs", 1_000_000).rate("rate", 41_234.6).ratio("ratio", 0.61234);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(text, r#"{"bench":"tick","jobs":1000000,"rate":41235,"ratio":0.612}"#);
    }

    #[test]
    fn shown_numbers_have_thousands_separators() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
