//! What `wasi:http` calls when a guest sends a request.

use super::Client;
use crate::wasm::call::Call;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::{Error as HttpError, RequestOptions, WasiBody, WasiHttpHooks};

/// Bytes of an outgoing body that a guest may hand over at once; as many again may wait.
const BODY_CHUNK: usize = 16 << 10;

/// The hooks of one instance.
pub(in crate::wasm) struct Hooks {
    pub(in crate::wasm) client: Arc<Client>,
    /// The call that requests are made for.
    pub(in crate::wasm) call: Arc<Call>,
    /// One for each request that the instance may have under way.
    pub(in crate::wasm) turns: Arc<Semaphore>,
}

type Exchange = Result<
    (
        http::Response<WasiBody>,
        Box<dyn Future<Output = Result<(), HttpError>> + Send>,
    ),
    HttpError,
>;

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), HttpError>> + Send>,
    ) -> Box<dyn Future<Output = Exchange> + Send> {
        let sending = Arc::clone(&self.client).send(
            request,
            options,
            Arc::clone(&self.call),
            Arc::clone(&self.turns),
        );
        Box::new(async move {
            let response = sending.await?;
            let done: Pin<Box<dyn Future<Output = _> + Send>> =
                Box::pin(std::future::ready(Ok(())));
            Ok((
                response,
                Box::new(done) as Box<dyn Future<Output = _> + Send>,
            ))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }
}
