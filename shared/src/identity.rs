//! Who vouches for a message. Mail that stays on one host carries a keyed hash of the node; mail between
//! hosts is signed by the sending host ([`HostKey`]). Both stand in the envelope's last key, `sig`, as `scheme:hex`.

mod host;

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

pub use host::{HostIdentity, HostKey, HostKeyError, HostKeys, HostPublicKey};

/// The node's own key, 32 random bytes that never leave the host.
#[derive(Clone)]
pub struct NodeKey([u8; 32]);

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(..)")
    }
}

const SCHEME: &str = "hmac-sha256:";

impl NodeKey {
    /// Bytes in the key.
    pub const BYTES: usize = 32;

    /// The key with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The keyed hash of `bytes`, as it stands in `sig`.
    pub fn sign(&self, bytes: &[u8]) -> String {
        format!("{SCHEME}{}", hex(&self.mac(bytes).finalize().into_bytes()))
    }

    /// Whether `sig` is this key's hash of `bytes`; compared in constant time.
    pub fn verify(&self, bytes: &[u8], sig: &str) -> bool {
        let Some(tag) = sig.strip_prefix(SCHEME).and_then(unhex) else { return false };
        self.mac(bytes).verify_slice(&tag).is_ok()
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        // A 32-byte key is below the block size, so it is used as it is: padded, never hashed.
        let mut mac = Hmac::<Sha256>::new(&padded(&self.0).into());
        mac.update(bytes);
        mac
    }
}

fn padded(key: &[u8; 32]) -> [u8; 64] {
    let mut block = [0; 64];
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    block
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Bytes from hex, or nothing where the text is not hex.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect()
}

/// SHA-256 as lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_or_another_key_is_noticed() {
        let key = NodeKey::from_bytes([7; 32]);
        let sig = key.sign(b"hello");
        assert!(key.verify(b"hello", &sig));
        assert!(!key.verify(b"hellp", &sig));
        assert!(!NodeKey::from_bytes([8; 32]).verify(b"hello", &sig));
        for bad in ["", "hmac-sha256:", "hmac-sha256:zz", "ed25519:00", &sig[..sig.len() - 1]] {
            assert!(!key.verify(b"hello", bad), "{bad}");
        }
    }

    #[test]
    fn the_hash_is_the_standard_one() {
        // RFC 4231, test case 2 needs a short key; case 1 a 20-byte one. With 32 bytes: computed by OpenSSL.
        let sig = NodeKey::from_bytes([0x0b; 32]).sign(b"Hi There");
        assert_eq!(sig, "hmac-sha256:198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7");
    }
}
