//! Operations of a transaction (RFC 7047, section 5.2).

use serde_json::{Map, Value, json};

use super::value;

/// Operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::linux) struct Operation {
    name: &'static str,
    table: &'static str,
    json: Value,
}

/// Returns the condition for the row with this UUID.
fn is_row(uuid: &str) -> Value {
    json!(["_uuid", "==", value::uuid(uuid)])
}

impl Operation {
    fn new(name: &'static str, table: &'static str, members: Value) -> Self {
        let mut json = Map::from_iter([("op".to_owned(), name.into())]);
        if !table.is_empty() {
            json.insert("table".to_owned(), table.into());
        }
        if let Value::Object(members) = members {
            json.extend(members);
        }
        Self { name, table, json: Value::Object(json) }
    }

    /// Reads these columns of all rows.
    pub(in crate::linux) fn select(table: &'static str, columns: &[&str]) -> Self {
        Self::new("select", table, json!({"where": [], "columns": columns}))
    }

    /// Reads these columns of the rows with this name.
    pub(in crate::linux) fn select_named(table: &'static str, name: &str, columns: &[&str]) -> Self {
        Self::new("select", table, json!({"where": [["name", "==", name]], "columns": columns}))
    }

    /// Reads these columns of one row.
    pub(in crate::linux) fn select_row(table: &'static str, uuid: &str, columns: &[&str]) -> Self {
        Self::new("select", table, json!({"where": [is_row(uuid)], "columns": columns}))
    }

    /// Adds a comment to the transaction, which the server writes to the log of its database.
    pub(in crate::linux) fn comment(text: &str) -> Self {
        Self::new("comment", "", json!({"comment": text}))
    }

    /// Inserts a row, which other operations of the transaction call `uuid_name`.
    pub(in crate::linux) fn insert(table: &'static str, uuid_name: &str, row: &Value) -> Self {
        Self::new("insert", table, json!({"uuid-name": uuid_name, "row": row}))
    }

    /// Sets columns of a row.
    pub(in crate::linux) fn update(table: &'static str, uuid: &str, row: &Value) -> Self {
        Self::new("update", table, json!({"where": [is_row(uuid)], "row": row}))
    }

    /// Changes columns of a row relative to their values.
    pub(in crate::linux) fn mutate(table: &'static str, uuid: &str, mutations: &[Value]) -> Self {
        Self::new("mutate", table, json!({"where": [is_row(uuid)], "mutations": mutations}))
    }

    /// Refuses the transaction unless the row has these values: conditions such as `["name", "==", "br0"]`.
    pub(in crate::linux) fn assert_row(table: &'static str, uuid: &str, conditions: Vec<Value>) -> Self {
        let conditions: Vec<Value> = std::iter::once(is_row(uuid)).chain(conditions).collect();
        Self::wait(table, &conditions, "!=")
    }

    /// Refuses the transaction if there is a row with this name.
    pub(in crate::linux) fn assert_absent(table: &'static str, name: &str) -> Self {
        Self::wait(table, &[json!(["name", "==", name])], "==")
    }

    /// Refuses the transaction if the table has a row.
    pub(in crate::linux) fn assert_empty(table: &'static str) -> Self {
        Self::wait(table, &[], "==")
    }

    /// Waits for no time until the matching rows are (`==`) or are not (`!=`) an empty list.
    fn wait(table: &'static str, conditions: &[Value], until: &str) -> Self {
        let wait =
            json!({"where": conditions, "columns": ["_uuid"], "until": until, "rows": [], "timeout": 0});
        Self::new("wait", table, wait)
    }

    /// Returns the text for errors.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.name, self.table)
    }

    /// Returns whether the operation only asserts something.
    pub(super) fn is_assertion(&self) -> bool {
        self.name == "wait"
    }

    /// Returns the JSON of the operation.
    pub(super) const fn json(&self) -> &Value {
        &self.json
    }
}
