//! Framing of JSON values that follow each other without a separator.

use serde_json::Value;

/// Largest message. The tables of a node with 4,000 ports of pods, each with the keys of OVN, take 3.4 MB. Parsed, a
/// message may take ten times its size.
pub(super) const MAX_MESSAGE: usize = 16 << 20;
/// Deepest nesting of a message, which is also the limit of `serde_json`.
const MAX_DEPTH: usize = 127;

/// Received bytes that are not parsed yet. Every byte is examined once to find the end of a message.
#[derive(Debug, Default)]
pub(in crate::linux) struct MessageBuffer {
    bytes: Vec<u8>,
    /// Number of bytes that were examined.
    examined: usize,
    /// Number of open objects and arrays.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl MessageBuffer {
    /// Adds received bytes.
    pub(in crate::linux) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns whether there is an incomplete message.
    pub(super) fn has_rest(&self) -> bool {
        !self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// Removes and returns the next complete message; `None` if more bytes are needed. Fails if no bytes can complete
    /// the message.
    pub(in crate::linux) fn next(&mut self) -> Result<Option<Value>, String> {
        while let Some(&byte) = self.bytes.get(self.examined) {
            self.examined += 1;
            if self.examined > MAX_MESSAGE {
                return Err(format!("a message of more than {} MiB", MAX_MESSAGE >> 20));
            }
            if self.ends_message(byte)? {
                let rest = self.bytes.split_off(self.examined);
                let message = std::mem::replace(&mut self.bytes, rest);
                self.examined = 0;
                return serde_json::from_slice(&message).map(Some).map_err(|error| error.to_string());
            }
        }
        if self.depth == 0 {
            // Only whitespace between messages.
            self.bytes.clear();
            self.examined = 0;
        }
        Ok(None)
    }

    /// Examines the next byte. Returns whether it is the last one of a message.
    fn ends_message(&mut self, byte: u8) -> Result<bool, String> {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(false);
        }
        match byte {
            b'{' | b'[' if self.depth > 0 || byte == b'{' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => self.depth -= 1,
            b'"' if self.depth > 0 => self.in_string = true,
            _ if self.depth > 0 || byte.is_ascii_whitespace() => return Ok(false),
            _ => return Err(format!("a message that begins with byte {byte:#04x}")),
        }
        if self.depth > MAX_DEPTH {
            return Err(format!("a message with more than {MAX_DEPTH} levels"));
        }
        Ok(self.depth == 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all(chunks: &[&[u8]]) -> Result<Vec<Value>, String> {
        let mut buffer = MessageBuffer::default();
        let mut found = Vec::new();
        for chunk in chunks {
            buffer.push(chunk);
            while let Some(message) = buffer.next()? {
                found.push(message);
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_are_separated_wherever_they_are_torn() {
        let messages = [json!({"a": "}\"\\{"}), json!({"b": [1, {"c": null}]}), json!({})];
        let text = messages.iter().map(Value::to_string).collect::<Vec<_>>().join("\n ");
        for cut in 0..text.len() {
            let (one, two) = text.as_bytes().split_at(cut);
            assert_eq!(all(&[one, two]).unwrap(), messages);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "1", "null", "}", "\"a\"", "{]", "{\"a\":}", "{\"a\":1e999999}", "\0"] {
            assert!(all(&[text.as_bytes()]).is_err(), "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(1000));
        assert!(all(&[deep.as_bytes()]).is_err());
    }

    #[test]
    fn a_message_without_an_end_is_refused_at_the_limit() {
        let mut buffer = MessageBuffer::default();
        buffer.push(b"{\"a\":\"");
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..=16).find_map(|_| {
            buffer.push(&chunk);
            buffer.next().err()
        });
        assert_eq!(refused.unwrap(), "a message of more than 16 MiB");
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(&[&bytes]);
        }
    }
}
