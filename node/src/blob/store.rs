//! The blob store that hosts share: objects under names, over crate `object_store`. A call blocks its thread, has
//! an end, and may be made on any thread: the work runs on a thread of the store's own. What was put is durable
//! there at return, as far as the store keeps its word; a shared directory is synced by us.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ClientOptions, Error as ObjectError, ObjectStore, ObjectStoreExt, PutMode, RetryConfig};
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use reqwest::Url;
use tokio::runtime::Runtime;

/// What a query of an `s3://` address may hold.
const QUERY: &[&str] = &["endpoint", "region"];
const CONNECT: Duration = Duration::from_secs(5);
/// One request; the largest object goes at 2 MiB a second.
const REQUEST: Duration = Duration::from_secs(40);
const RETRIES: usize = 3;
const RETRYING: Duration = Duration::from_secs(30);
/// A whole call, retries and all; nobody waits longer.
const CALL: Duration = Duration::from_secs(90);
/// Objects of one listing; more are not read.
const LIST_MAX: usize = 100_000;

/// What a store cannot do, and why.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is none.
    #[error("blob store {url:?}: {why}")]
    Address {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no object of this name.
    #[error("blob store {store} has no object {key}")]
    NotFound {
        /// Which store.
        store: String,
        /// The object.
        key: String,
    },
    /// The object is longer than what may be read.
    #[error("object {key} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The object.
        key: String,
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The store did not answer, or not well. It may be fine later.
    #[error("blob store {store}")]
    Failed {
        /// Which store.
        store: String,
        /// What was said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The call took longer than any may.
    #[error("blob store {store} has not answered for {} s", CALL.as_secs())]
    Silent {
        /// Which store.
        store: String,
    },
}

impl StoreError {
    /// As a refusal for users.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Address { .. } => Refusal::new(Code::BadConfig, self.to_string())
                .effect("nothing was started")
                .next("blob_store = \"s3://BUCKET/PREFIX?endpoint=http://HOST:PORT\"   or   \"file:///DIRECTORY\""),
            Self::NotFound { .. } | Self::TooLarge { .. } => {
                Refusal::new(Code::BlobMissing, self.to_string())
            }
            Self::Failed { source, .. } => Refusal::new(Code::BlobStoreUnreachable, self.to_string())
                .because(source.as_ref())
                .retry_after_ms(5_000),
            Self::Silent { .. } => {
                Refusal::new(Code::BlobStoreUnreachable, self.to_string()).retry_after_ms(5_000)
            }
        }
    }
}

/// A blob store. Clones share it.
#[derive(Clone)]
pub struct BlobStore(Arc<Inner>);

struct Inner {
    objects: Arc<dyn ObjectStore>,
    prefix: Key,
    name: String,
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The plain drop waits, which a thread of another runtime may not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobStore({})", self.0.name)
    }
}

impl BlobStore {
    /// `s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]` or `file:///DIRECTORY`. Credentials of S3 are the `AWS_*` of
    /// `environment`, never part of the address. Asks nobody: a store that is away now may be there later.
    pub fn open(url: &str, environment: &[(OsString, OsString)]) -> Result<Self, StoreError> {
        let wrong = |why: String| StoreError::Address { url: without_secrets(url), why };
        let address = Url::parse(url).map_err(|error| wrong(format!("it is not an address: {error}")))?;
        if !address.username().is_empty() || address.password().is_some() {
            return Err(wrong("it holds credentials; give them as AWS_ACCESS_KEY_ID and so on".to_owned()));
        }
        let (objects, prefix): (Arc<dyn ObjectStore>, String) = match address.scheme() {
            "s3" => (Arc::new(s3(&address, environment).map_err(wrong)?), address.path().to_owned()),
            "file" => (Arc::new(directory(&address).map_err(wrong)?), String::new()),
            other => return Err(wrong(format!("{other:?} is not a kind of store; use s3 or file"))),
        };
        let prefix = Key::parse(prefix.trim_matches('/')).map_err(|error| wrong(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("blobs")
            .enable_all()
            .build()
            .map_err(|error| wrong(format!("start its thread: {error}")))?;
        let name = without_secrets(url);
        Ok(Self(Arc::new(Inner { objects, prefix, name, runtime: Some(runtime) })))
    }

    /// The same where one is configured.
    pub fn open_if(
        url: Option<&str>,
        environment: &[(OsString, OsString)],
    ) -> Result<Option<Self>, StoreError> {
        url.map(|url| Self::open(url, environment)).transpose()
    }

    /// Its address, without its query.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Puts an object that never changes: one of the same name and length that is there is left alone.
    pub fn put_once(&self, key: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let wanted = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let at = self.key(key);
        self.call(key, move |objects| async move {
            match objects.head(&at).await {
                Ok(there) if there.size == wanted => return Ok(()),
                Ok(_) => {}
                Err(ObjectError::NotFound { .. }) => {
                    match objects.put_opts(&at, bytes.clone().into(), PutMode::Create.into()).await {
                        Ok(_) => return Ok(()),
                        // Somebody else was first: looked at again, as what was there before.
                        Err(ObjectError::AlreadyExists { .. } | ObjectError::Precondition { .. }) => {
                            if objects.head(&at).await?.size == wanted {
                                return Ok(());
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            // What is there under that name is broken off.
            objects.put(&at, bytes.into()).await.map(|_| ())
        })
    }

    /// Reads an object of at most `bytes_max`.
    pub fn get(&self, key: &str, bytes_max: u64) -> Result<Vec<u8>, StoreError> {
        let at = self.key(key);
        let read = self.call(key, move |objects| async move {
            let found = objects.get(&at).await?;
            let bytes = found.meta.size;
            if bytes > bytes_max {
                return Ok(Err(bytes));
            }
            Ok(Ok(found.bytes().await?.to_vec()))
        })?;
        read.map_err(|bytes| StoreError::TooLarge { key: key.to_owned(), bytes, limit: bytes_max })
    }

    /// The names directly or indirectly below `under`, relative to it, in order.
    pub fn list(&self, under: &str) -> Result<Vec<String>, StoreError> {
        let at = self.key(under);
        self.call(under, move |objects| async move {
            let below = objects.list(Some(&at)).try_filter_map(|meta| {
                let parts = meta
                    .location
                    .prefix_match(&at)
                    .map(|parts| parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"));
                futures_util::future::ready(Ok(parts))
            });
            use futures_util::StreamExt;
            let mut names: Vec<String> = below.take(LIST_MAX).try_collect().await?;
            names.sort_unstable();
            Ok(names)
        })
    }

    /// Removes an object. Fine if it is not there.
    pub fn remove(&self, key: &str) -> Result<(), StoreError> {
        let at = self.key(key);
        self.call(key, move |objects| async move {
            match objects.delete(&at).await {
                Err(ObjectError::NotFound { .. }) => Ok(()),
                removed => removed,
            }
        })
    }

    fn key(&self, key: &str) -> Key {
        Key::from_iter(self.0.prefix.parts().chain(Key::from(key).parts()))
    }

    fn call<T, F>(&self, key: &str, work: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ObjectError>> + Send + 'static,
    {
        let store = || self.0.name.clone();
        let (answer, answered) = sync_channel(1);
        let working = work(Arc::clone(&self.0.objects));
        let Some(runtime) = &self.0.runtime else { return Err(StoreError::Silent { store: store() }) };
        let task = runtime.spawn(async move {
            let _nobody_waits_any_more = answer.send(working.await);
        });
        match answered.recv_timeout(CALL) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(ObjectError::NotFound { .. })) => {
                Err(StoreError::NotFound { store: store(), key: key.to_owned() })
            }
            Ok(Err(error)) => Err(StoreError::Failed { store: store(), source: Box::new(error) }),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                task.abort();
                Err(StoreError::Silent { store: store() })
            }
        }
    }
}

fn without_secrets(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match (plain.split_once("://"), plain.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (_, _) => plain.to_owned(),
    }
}

fn directory(address: &Url) -> Result<LocalFileSystem, String> {
    if address.query().is_some() {
        return Err("a directory takes no settings".to_owned());
    }
    let path: PathBuf = address.to_file_path().map_err(|()| "use file:///DIRECTORY".to_owned())?;
    // Not made: a share that is not mounted must not look like an empty store.
    if !path.is_dir() {
        return Err(format!("{} is not a directory that is there", path.display()));
    }
    let store = LocalFileSystem::new_with_prefix(&path).map_err(|error| error.to_string())?;
    Ok(store.with_fsync(true))
}

fn s3(address: &Url, environment: &[(OsString, OsString)]) -> Result<impl ObjectStore + use<>, String> {
    // Of two providers of TLS in one process neither is taken by itself; ours is the one of the link to NATS.
    let _it_may_be_there_already = rustls::crypto::ring::default_provider().install_default();
    let bucket = address.host_str().filter(|bucket| !bucket.is_empty()).ok_or("it names no bucket")?;
    let client = ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT);
    let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRYING, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
    for (name, value) in environment {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        if name.starts_with("AWS_")
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder.with_bucket_name(bucket);
    for (name, value) in address.query_pairs() {
        builder = match name.as_ref() {
            "endpoint" => {
                let plain = value.starts_with("http://");
                if !plain && !value.starts_with("https://") {
                    return Err(format!("endpoint {value:?} is not http:// or https://"));
                }
                builder.with_endpoint(value).with_allow_http(plain)
            }
            "region" => builder.with_region(value),
            other => {
                return Err(format!("{other:?} is not a setting of it; there are {}", QUERY.join(", ")));
            }
        };
    }
    builder.build().map_err(|error| error.to_string())
}
