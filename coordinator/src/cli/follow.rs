//! Server-sent events, read bit by bit: `id: SEQ` and `data: {json}`, an empty line between two. Pure.

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Item {
    /// Its sequence, where it has one.
    pub id: Option<u64>,
    /// Its data; lines are joined.
    pub data: String,
}

/// Largest event that is kept while its end has not come.
const ITEM_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What was read and not yet handed out.
#[derive(Debug, Default)]
pub struct Parser {
    bytes: Vec<u8>,
    item: Item,
    has_data: bool,
}

impl Parser {
    /// Takes bytes as they came; answers what is whole now. `None` when an event has no end.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<Vec<Item>> {
        self.bytes.extend_from_slice(bytes);
        let mut items = Vec::new();
        while let Some(end) = self.bytes.iter().position(|b| *b == b'\n') {
            let rest = self.bytes.split_off(end + 1);
            let line = std::mem::replace(&mut self.bytes, rest);
            let line = String::from_utf8_lossy(&line);
            self.line(line.trim_end_matches(['\n', '\r']), &mut items);
        }
        (self.bytes.len() + self.item.data.len() <= ITEM_BYTES_MAX).then_some(items)
    }

    fn line(&mut self, line: &str, items: &mut Vec<Item>) {
        if line.is_empty() {
            let item = std::mem::take(&mut self.item);
            if std::mem::take(&mut self.has_data) {
                items.push(item);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.item.data.push('\n');
                }
                self.item.data.push_str(value);
                self.has_data = true;
            }
            "id" => self.item.id = value.parse().ok(),
            // `event`, `retry` and comments (an empty field name) say nothing that is needed here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &[u8] =
        b": hello\nid: 7\ndata: {\"a\":1}\n\nid: 8\r\ndata: x\r\ndata: y\r\n\r\nretry: 5\n\ndata";

    fn expected() -> Vec<Item> {
        vec![
            Item { id: Some(7), data: "{\"a\":1}".to_owned() },
            Item { id: Some(8), data: "x\ny".to_owned() },
        ]
    }

    proptest! {
        #[test]
        fn events_come_out_the_same_however_the_bytes_are_cut(cuts in prop::collection::vec(0_usize..70, 0..8)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut parser, mut items, mut from) = (Parser::default(), Vec::new(), 0);
            for to in cuts.into_iter().map(|at| at.min(STREAM.len())).chain([STREAM.len()]) {
                items.extend(parser.feed(&STREAM[from..to]).unwrap());
                from = to;
            }
            prop_assert_eq!(items, expected());
        }
    }
}
