//! All limits and defaults, in one table that `posthouse config` prints.

use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr, $unit:literal;)*) => {
        /// The limits in force. Sizes are bytes, times milliseconds, as the names say.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $value,)* }
            }
        }

        impl Limits {
            /// Name, value and unit of each limit, in the order of the table.
            pub fn table(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), u64::from(self.$name), $unit),)*]
            }

            /// Sets one limit by its name; answers whether there is one of that name.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => match <$type>::try_from(value) {
                        Ok(value) => { self.$name = value; true }
                        Err(_) => false,
                    },)*
                    _ => false,
                }
            }
        }
    };
}

limits! {
    /// Largest encoded envelope.
    envelope_bytes: u64 = 256 * 1024, "bytes";
    /// Largest body in the blob store.
    blob_bytes: u64 = 64 * 1024 * 1024, "bytes";
    /// Largest `summary` of a message.
    summary_bytes: u32 = 1024, "bytes";
    /// Mailboxes on one host.
    mailboxes_per_host: u32 = 10_000, "mailboxes";
    /// Ready messages in one mailbox, before it answers `busy`.
    ready_per_mailbox: u32 = 1_000_000, "messages";
    /// Places in a mailbox kept for control messages beyond `ready_per_mailbox`.
    control_reserve: u32 = 1_000, "messages";
    /// Hosts of one coordinator.
    hosts: u32 = 1_000, "hosts";
    /// Teams of one coordinator.
    teams: u32 = 1_000, "teams";
    /// Tasks on one board that are not ended.
    open_tasks_per_team: u32 = 100_000, "tasks";
    /// Schedules of one team.
    schedules_per_team: u32 = 1_000, "schedules";
    /// Messages in one turn's input.
    turn_messages: u32 = 32, "messages";
    /// Bytes in one turn's input; at least one message goes in.
    turn_bytes: u64 = 64 * 1024, "bytes";
    /// How often a message is tried before it is quarantined, and a task before it is put on hold.
    max_attempts: u32 = 5, "attempts";
    /// Result of a turn that is kept; more is cut, and the cut is said.
    result_bytes: u64 = 64 * 1024, "bytes";
    /// End of a failed turn's stderr that is told to the lead.
    stderr_tail_bytes: u64 = 4 * 1024, "bytes";
    /// Log of one agent, before it is turned over.
    log_bytes: u64 = 8 * 1024 * 1024, "bytes";
    /// A turn may not run longer; 0 means no limit.
    turn_ms_max: u64 = 0, "ms";
    /// From a shutdown request or a stop to SIGTERM, and from that to SIGKILL.
    shutdown_grace_ms: u64 = 10_000, "ms";
    /// A permission question that nobody answers is denied after this.
    permission_ms: u64 = 600_000, "ms";
    /// Silent for so long, a host is unreachable.
    unreachable_after_ms: u64 = 10_000, "ms";
    /// Silent for so long on a bus that is fine, a host is lost: its claims are released.
    lost_after_ms: u64 = 30_000, "ms";
    /// How long a silent host keeps its teammates.
    rehome_after_ms: u64 = 300_000, "ms";
    /// A remote stamp further ahead than this is not adopted.
    max_skew_ms: u64 = 300_000, "ms";
    /// First pause after a turn that failed in passing; doubles up to `retry_ms_max`.
    retry_ms_min: u64 = 1_000, "ms";
    /// Longest such pause.
    retry_ms_max: u64 = 60_000, "ms";
    /// Messages kept in `done/` before pruning.
    done_messages: u32 = 100_000, "messages";
    /// Days that a message stays in `done/` before pruning.
    done_days: u32 = 7, "days";
    /// Lane numbers reserved on disk at once.
    lane_block: u64 = 1_024, "numbers";
    /// Retried requests get the first answer for this long.
    request_memory_ms: u64 = 86_400_000, "ms";
    /// Events kept for followers that reconnect.
    events: u32 = 65_536, "events";
    /// Body of one HTTP request.
    request_bytes: u64 = 1024 * 1024, "bytes";
    /// Longest single `wait` of a client before it asks again.
    wait_ms_max: u64 = 30_000, "ms";
    /// Requests that wait for one journal append.
    decisions_queue: u32 = 1_024, "requests";
}

impl Limits {
    /// `shutdown_grace_ms` as a duration.
    pub const fn shutdown_grace(&self) -> Duration {
        Duration::from_millis(self.shutdown_grace_ms)
    }

    /// `max_skew_ms` as a duration.
    pub const fn max_skew(&self) -> Duration {
        Duration::from_millis(self.max_skew_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_limit_and_sets_it() {
        let mut limits = Limits::default();
        assert_eq!(limits.table().first(), Some(&("envelope_bytes", 262_144, "bytes")));
        assert!(limits.set("max_attempts", 2) && limits.max_attempts == 2);
        assert!(!limits.set("no_such_limit", 1));
        assert!(!limits.set("max_attempts", u64::MAX));
    }
}
