//! Host keys: ed25519, as NATS nkeys, so that one key signs mail and can log in to the bus. A host signs what
//! it sends; others check it against the key that the authority has registered for it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use nkeys::KeyPair;
use serde::{Deserialize, Serialize};

use super::{hex, unhex};
use crate::generation::Generation;
use crate::name::HostName;

const SCHEME: &str = "ed25519:";

/// The text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host key ({0})")]
pub struct HostKeyError(String);

impl From<nkeys::error::Error> for HostKeyError {
    fn from(error: nkeys::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// A host's private key. Kept in `DATA/host.seed`, readable by its owner only; never leaves the host.
#[derive(Clone)]
pub struct HostKey(Arc<KeyPair>);

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({})", self.0.public_key())
    }
}

impl HostKey {
    /// A new key.
    pub fn generate() -> Self {
        Self(Arc::new(KeyPair::new_user()))
    }

    /// From the text that [`HostKey::seed`] gave.
    pub fn from_seed(seed: &str) -> Result<Self, HostKeyError> {
        Ok(Self(Arc::new(KeyPair::from_seed(seed.trim())?)))
    }

    /// The secret as text (`SU...`).
    pub fn seed(&self) -> Result<String, HostKeyError> {
        Ok(self.0.seed()?)
    }

    /// What others check against.
    pub fn public(&self) -> HostPublicKey {
        HostPublicKey { text: self.0.public_key(), pair: Arc::clone(&self.0) }
    }

    /// The signature of `bytes`, as it stands in `sig`. A key made by this type can always sign.
    pub fn sign(&self, bytes: &[u8]) -> String {
        format!("{SCHEME}{}", hex(&self.0.sign(bytes).unwrap_or_default()))
    }
}

/// A host's public key (`U...`).
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPublicKey {
    text: String,
    pair: Arc<KeyPair>,
}

impl HostPublicKey {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `sig` is this key's signature of `bytes`.
    pub fn verify(&self, bytes: &[u8], sig: &str) -> bool {
        let sig = sig.strip_prefix(SCHEME).and_then(unhex);
        sig.is_some_and(|sig| self.pair.verify(bytes, &sig).is_ok())
    }
}

impl fmt::Debug for HostPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for HostPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl PartialEq for HostPublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for HostPublicKey {}

impl FromStr for HostPublicKey {
    type Err = HostKeyError;
    fn from_str(text: &str) -> Result<Self, HostKeyError> {
        Ok(Self { text: text.to_owned(), pair: Arc::new(KeyPair::from_public_key(text)?) })
    }
}

impl TryFrom<String> for HostPublicKey {
    type Error = HostKeyError;
    fn try_from(text: String) -> Result<Self, HostKeyError> {
        text.parse()
    }
}

impl From<HostPublicKey> for String {
    fn from(key: HostPublicKey) -> String {
        key.text
    }
}

/// A host as the authority has registered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The entry that granted the name to this data directory.
    pub generation: Generation,
    /// Its key.
    pub key: HostPublicKey,
}

/// The hosts that this one knows. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct HostKeys(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    present: BTreeMap<HostName, HostIdentity>,
    /// Also the keys of before: mail that was stored stays what it was.
    ever: BTreeMap<HostName, Vec<HostPublicKey>>,
}

impl HostKeys {
    /// Who is registered.
    pub fn names(&self) -> Vec<HostName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).present.keys().cloned().collect()
    }

    /// What the authority says now, all of it: hosts that are not named are no longer registered. What they
    /// signed and is stored already stays theirs.
    pub fn set_all(&self, hosts: BTreeMap<HostName, HostIdentity>) {
        for (name, host) in &hosts {
            self.remember(name.clone(), host.key.clone());
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner).present = hosts;
    }

    /// One more host, or a new identity of one.
    pub fn set(&self, name: HostName, host: HostIdentity) {
        self.remember(name.clone(), host.key.clone());
        self.0.write().unwrap_or_else(PoisonError::into_inner).present.insert(name, host);
    }

    /// A key under which mail of this host may be stored here. New mail needs the present one.
    pub fn remember(&self, name: HostName, key: HostPublicKey) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let keys = known.ever.entry(name).or_default();
        if !keys.contains(&key) {
            keys.push(key);
        }
    }

    /// The present identity of one host.
    pub fn get(&self, name: &HostName) -> Option<HostIdentity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).present.get(name).cloned()
    }

    /// All present identities.
    pub fn all(&self) -> BTreeMap<HostName, HostIdentity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).present.clone()
    }

    /// Whether `sig` is the signature of `bytes` by a key that is, or was, this host's.
    pub fn ever_signed(&self, name: &HostName, bytes: &[u8], sig: &str) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner).ever.get(name).cloned();
        keys.unwrap_or_default().iter().any(|key| key.verify(bytes, sig))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_signed_is_its_own_and_nobody_elses() {
        let (key, other) = (HostKey::generate(), HostKey::generate());
        let key = HostKey::from_seed(&key.seed().unwrap()).unwrap();
        let sig = key.sign(b"hello");
        let public: HostPublicKey = key.public().to_string().parse().unwrap();
        assert!(public.verify(b"hello", &sig) && !public.verify(b"hellp", &sig));
        assert!(!other.public().verify(b"hello", &sig));
        for bad in ["", "ed25519:", "ed25519:00", "hmac-sha256:00", &sig[..sig.len() - 1]] {
            assert!(!public.verify(b"hello", bad), "{bad}");
        }
        assert!("UABC".parse::<HostPublicKey>().is_err() && HostKey::from_seed("SUABC").is_err());
        assert!(!format!("{key:?}").contains(&key.seed().unwrap()));
    }

    #[test]
    fn a_key_of_before_still_vouches_for_what_is_stored() {
        let (hosts, name) = (HostKeys::default(), HostName::new("beta").unwrap());
        let (old, new) = (HostKey::generate(), HostKey::generate());
        let sig = old.sign(b"x");
        for (index, key) in [(1, &old), (2, &new)] {
            let identity = HostIdentity { generation: Generation::new(1, index), key: key.public() };
            hosts.set_all([(name.clone(), identity)].into());
        }
        assert_eq!(hosts.get(&name).unwrap().key, new.public());
        assert!(hosts.ever_signed(&name, b"x", &sig));
        assert!(!hosts.ever_signed(&HostName::new("gamma").unwrap(), b"x", &sig));
    }
}
