//! Transaction that changes the configuration of Open vSwitch.

use serde_json::{Value, json};

use super::super::ovsdb::{Operation, OvsdbClient, value};
use super::rows::RootRow;
use crate::HostError;

const TABLE: &str = "Open_vSwitch";

/// Number of operations in an empty transaction: an assertion and a comment.
const OWN_OPERATIONS: usize = 2;

/// Operations of one transaction. Assertions come first, the number of the configuration last.
pub(in crate::linux) struct Transaction {
    /// UUID of the root row; `None` in a database that nobody initialized.
    root: Option<String>,
    operations: Vec<Operation>,
    /// Changes of the root row.
    mutations: Vec<Value>,
}

impl Transaction {
    /// Returns a transaction without operations. `root` is the root row that was read.
    pub(in crate::linux) fn new(root: Option<&RootRow>, comment: &str) -> Self {
        let root = root.map(|root| root.uuid.clone());
        let assertion = match &root {
            Some(uuid) => Operation::assert_row(TABLE, uuid, Vec::new()),
            None => Operation::assert_empty(TABLE),
        };
        let operations = vec![assertion, Operation::comment(&format!("vfleet: {comment}"))];
        Self { root, operations, mutations: Vec::new() }
    }

    /// Adds an operation.
    pub(in crate::linux) fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Returns whether the transaction has operations of its caller.
    pub(in crate::linux) fn has_changes(&self) -> bool {
        self.operations.len() > OWN_OPERATIONS || !self.mutations.is_empty()
    }

    /// Adds changes of the root row.
    pub(in crate::linux) fn mutate_root(&mut self, mutations: impl IntoIterator<Item = Value>) {
        self.mutations.extend(mutations);
    }

    /// Executes the transaction. Returns the number of the new configuration.
    pub(in crate::linux) fn execute(
        mut self,
        client: &mut OvsdbClient,
        attempt: &str,
    ) -> Result<i64, HostError> {
        let Some(uuid) = self.root else {
            // As ovs-vsctl does: the first change creates the root row.
            let mut row = json!({"next_cfg": 1});
            for mutation in &self.mutations {
                if let [Value::String(column), Value::String(kind), content] =
                    mutation.as_array().map(Vec::as_slice).unwrap_or_default()
                    && kind == "insert"
                {
                    row[column] = content.clone();
                }
            }
            self.operations.push(Operation::insert(TABLE, "root", &row));
            client.transact(&self.operations, attempt)?;
            return Ok(1);
        };
        self.mutations.push(json!(["next_cfg", "+=", 1]));
        self.operations.push(Operation::mutate(TABLE, &uuid, &self.mutations));
        self.operations.push(Operation::select_row(TABLE, &uuid, &["next_cfg"]));
        let results = client.transact(&self.operations, attempt)?;
        let number = results.last().and_then(|result| result.get("rows")?.get(0)?.get("next_cfg")?.as_i64());
        number.ok_or_else(|| client.invalid(attempt, "no next_cfg after its change".to_owned()))
    }
}

/// Encodes a set of UUIDs.
pub(in crate::linux) fn uuids<'u>(uuids: impl IntoIterator<Item = &'u String>) -> Value {
    value::set(uuids.into_iter().map(|uuid| value::uuid(uuid)))
}
