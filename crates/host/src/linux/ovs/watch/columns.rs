//! Columns that a watch monitors. Statistics, which ovs-vswitchd writes all the time, are not among them.

use serde_json::{Value, json};

use super::super::rows;

/// Column that is only relevant while a change waits to be applied.
const CURRENT: &str = "cur_cfg";

/// Returns the monitored columns by table.
pub(super) fn monitored() -> Value {
    // Written by whoever changes the configuration, before ovs-vswitchd applies it.
    let is_monitored = |column: &&&str| !matches!(**column, "_uuid" | "next_cfg");
    let columns =
        |columns: &[&str]| json!({"columns": columns.iter().filter(is_monitored).collect::<Vec<_>>()});
    json!({
        "Open_vSwitch": columns(rows::ROOT),
        "Bridge": columns(rows::BRIDGE),
        "Port": columns(rows::PORT),
        "Interface": columns(rows::INTERFACE),
    })
}

/// Returns whether facts may have changed with an update. `unapplied` is the configuration that ovs-vswitchd did not
/// apply in time.
pub(in crate::linux) fn is_relevant(update: &Value, unapplied: Option<i64>) -> bool {
    // The parameters of an update: the identifier of the monitor and the tables.
    let Some(tables) = update.get(1).and_then(Value::as_object) else { return true };
    let is_row_relevant = |row: &Value| {
        let (old, new) = (row.get("old").and_then(Value::as_object), row.get("new"));
        let (Some(old), Some(new)) = (old, new) else { return true };
        if old.keys().any(|column| column != CURRENT) {
            return true;
        }
        // Only the number of the applied configuration.
        let current = new.get(CURRENT).and_then(Value::as_i64);
        unapplied.is_some_and(|number| current.is_none_or(|current| current >= number))
    };
    let rows = |table: &Value| table.as_object().is_none_or(|rows| rows.values().any(is_row_relevant));
    tables.values().any(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_configuration_matters_only_while_one_is_not_applied() {
        let update =
            |old: Value, new: Value| json!([null, {"Open_vSwitch": {"u": {"old": old, "new": new}}}]);
        let number = update(json!({"cur_cfg": 1}), json!({"cur_cfg": 2, "bridges": []}));
        assert!(
            !is_relevant(&number, None) && !is_relevant(&number, Some(3)) && is_relevant(&number, Some(2))
        );
        let both = update(json!({"cur_cfg": 1, "bridges": []}), json!({"cur_cfg": 2, "bridges": []}));
        assert!(is_relevant(&both, None));
        for unknown in
            [json!([]), json!([null, {"Bridge": 1}]), json!([null, {"Bridge": {"u": {"new": {}}}}])]
        {
            assert!(is_relevant(&unknown, None), "{unknown}");
        }
    }

    #[test]
    fn statistics_are_not_monitored() {
        let text = monitored().to_string();
        assert!(
            text.contains("ofport") && !text.contains("statistics") && !text.contains("next_cfg"),
            "{text}"
        );
    }
}
