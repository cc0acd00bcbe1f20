//! Every subject, stream and consumer name on the bus. Nobody else puts one together.

use crate::generation::Generation;
use crate::name::HostName;

/// The stream that carries mail between hosts.
pub const RELAY_STREAM: &str = "PH_RELAY";

/// All subjects of [`RELAY_STREAM`].
pub const RELAY_STREAM_SUBJECTS: [&str; 2] = ["ph.relay.*.*", "ph.relay_control.*.*"];

/// The stream that holds the journal of a cluster.
pub const JOURNAL_STREAM: &str = "PH_JOURNAL";

/// All subjects of [`JOURNAL_STREAM`].
pub const JOURNAL_STREAM_SUBJECTS: &str = "ph.journal.*";

/// Where a term's entries go.
pub fn journal(term: u64) -> String {
    format!("ph.journal.{term}")
}

/// Where mail goes: one subject a pair of hosts, control mail beside it.
pub fn relay(to: &HostName, from: &HostName, control: bool) -> String {
    let lane = if control { "relay_control" } else { "relay" };
    format!("ph.{lane}.{to}.{from}")
}

/// What a host's consumer takes from the stream.
pub fn relay_filters(to: &HostName) -> [String; 2] {
    [format!("ph.relay_control.{to}.*"), format!("ph.relay.{to}.*")]
}

/// The consumer of one host. It carries the host's generation: one made anew under the old name would not
/// fence late acknowledgements.
pub fn relay_consumer(host: &HostName, generation: Generation) -> String {
    format!("relay-{host}-{}-{}", generation.term, generation.index)
}

/// Whose consumer it is; nobody's where it is none of the relay's.
pub fn host_of_consumer(consumer: &str) -> Option<HostName> {
    let mut parts = consumer.strip_prefix("relay-")?.rsplitn(3, '-');
    let number = |part: Option<&str>| part.is_some_and(|part| part.parse::<u64>().is_ok());
    if !number(parts.next()) || !number(parts.next()) {
        return None;
    }
    HostName::new(parts.next()?).ok()
}

/// Where receipts and questions go; not kept by any stream.
pub fn receipts(to: &HostName, from: &HostName) -> String {
    format!("ph.receipt.{to}.{from}")
}

/// All receipts for one host.
pub fn receipts_filter(to: &HostName) -> String {
    format!("ph.receipt.{to}.*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_as_the_design_says() {
        let (alpha, beta) = (HostName::new("alpha").unwrap(), HostName::new("beta").unwrap());
        assert_eq!(relay(&beta, &alpha, false), "ph.relay.beta.alpha");
        assert_eq!(relay(&beta, &alpha, true), "ph.relay_control.beta.alpha");
        assert_eq!(relay_consumer(&beta, Generation::new(2, 17)), "relay-beta-2-17");
        assert_eq!(host_of_consumer("relay-beta-2-17"), Some(beta.clone()));
        assert_eq!(host_of_consumer("relay-gpu-2-3-4"), HostName::new("gpu-2").ok());
        assert_eq!(host_of_consumer("other-beta-2-17"), None);
        assert_eq!(receipts(&alpha, &beta), "ph.receipt.alpha.beta");
    }
}
