//! Whose word it is: a signed message counts if its key is the one that is registered for its host, its time is
//! near, and its nonce is new.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wire::Signed;
use posthouse_shared::clock::Stamp;
use posthouse_shared::codes::Code;
use posthouse_shared::identity::HostPublicKey;
use posthouse_shared::refusal::Refusal;

/// Nonces that are remembered; what would not fit is refused for a while.
const NONCES: usize = 1_000_000;

/// Remembers nonces for as long as their times are near.
#[derive(Debug)]
pub struct Guard {
    skew: Duration,
    seen: BTreeMap<(Stamp, String), ()>,
}

impl Guard {
    /// Times may be off by `skew`.
    pub const fn new(skew: Duration) -> Self {
        Self { skew, seen: BTreeMap::new() }
    }

    /// Lets a message pass, once. `registered` is the key of its host; a message that asks to be registered
    /// vouches for its own.
    pub fn check(
        &mut self,
        signed: &Signed,
        subject: &str,
        registered: Option<&str>,
        now: Stamp,
    ) -> Result<(), Refusal> {
        let host = &signed.host;
        let refuse = |text: String| Refusal::new(Code::Unauthorized, text).effect("nothing was done");
        if registered.is_some_and(|key| key != signed.key) {
            return Err(refuse(format!("the key is not the one of host \"{host}\"")));
        }
        let key: HostPublicKey =
            signed.key.parse().map_err(|_| refuse(format!("host \"{host}\" shows no key")))?;
        if !key.verify(&signed.covered(subject), &signed.sig) {
            return Err(refuse(format!("the signature is not that of host \"{host}\"")));
        }
        let off = now.since(signed.at).max(signed.at.since(now));
        if off > self.skew {
            let text = format!("the clock of host \"{host}\" is off by {} s", off.as_secs());
            return Err(refuse(text).retry_after_ms(2_000));
        }
        while let Some(((at, _), ())) = self.seen.first_key_value()
            && now.since(*at) > self.skew
        {
            self.seen.pop_first();
        }
        if self.seen.len() >= NONCES {
            return Err(Refusal::new(Code::Busy, "too many messages of hosts").retry_after_ms(2_000));
        }
        match self.seen.insert((signed.at, signed.nonce.clone()), ()) {
            None => Ok(()),
            Some(()) => Err(refuse(format!("a message of host \"{host}\" came twice"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::identity::HostKey;
    use posthouse_shared::name::HostName;

    fn signed(key: &HostKey, at: u64) -> Signed {
        let mut signed = Signed {
            host: HostName::new("beta").unwrap(),
            key: key.public().to_string(),
            at: Stamp::from_nanos(at * 1_000_000_000),
            nonce: "n".to_owned(),
            body: "{}".to_owned(),
            sig: String::new(),
        };
        signed.sig = key.sign(&signed.covered("ph.ask"));
        signed
    }

    #[test]
    fn a_message_counts_once_and_only_under_its_hosts_key() {
        let (key, other) = (HostKey::generate(), HostKey::generate());
        let now = Stamp::from_nanos(1_000_000_000_000);
        let mut guard = Guard::new(Duration::from_secs(300));
        let good = signed(&key, 1_000);
        let own = key.public().to_string();
        assert!(guard.check(&good, "ph.ask", Some(&own), now).is_ok());
        assert!(guard.check(&good, "ph.ask", Some(&own), now).is_err(), "repeated");
        assert!(guard.check(&signed(&other, 1_001), "ph.ask", Some(&own), now).is_err(), "another key");
        assert!(guard.check(&signed(&key, 1_002), "ph.beat", Some(&own), now).is_err(), "another subject");
        assert!(guard.check(&signed(&key, 600), "ph.ask", Some(&own), now).is_err(), "old");
        let forged = Signed { body: "[]".to_owned(), ..signed(&key, 1_003) };
        assert!(guard.check(&forged, "ph.ask", Some(&own), now).is_err(), "forged");
    }
}
