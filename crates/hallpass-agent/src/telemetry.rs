//! Spans of what clients ask for. With the feature `opentelemetry` a request belongs to the trace that its client names.

use axum::extract::{MatchedPath, Request};
use hallpass::Mode;
use tracing::Span;
use tracing::field::Empty;

/// A request over HTTP or gRPC. Names of locks are not part of its name: there may be many.
pub(crate) fn request(request: &Request) -> Span {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let span = tracing::debug_span!(
        "request",
        otel.name = format!("{} {path}", request.method()).trim_end(),
        otel.kind = "server",
        http.request.method = %request.method(),
        http.route = path,
        url.path = request.uri().path(),
        http.response.status_code = Empty,
    );
    #[cfg(feature = "opentelemetry")]
    propagation::continue_trace(&span, request.headers());
    span
}

/// From when a client asks for a lock until it has it, or not.
pub(crate) fn acquire(lock: &str, mode: Mode) -> Span {
    tracing::debug_span!("acquire", lock, %mode, outcome = Empty, fence = Empty)
}

/// How it ended: with a fence if the lock was granted.
pub(crate) fn acquired<E: std::fmt::Display>(span: &Span, result: Result<u64, E>) {
    if span.is_disabled() {
        return;
    }
    match result {
        Ok(fence) => span.record("outcome", "granted").record("fence", fence),
        Err(error) => span.record("outcome", error.to_string()),
    };
}

#[cfg(feature = "opentelemetry")]
mod propagation {
    use axum::http::HeaderMap;
    use opentelemetry::global;
    use opentelemetry::propagation::Extractor;
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key).and_then(|value| value.to_str().ok())
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(|key| key.as_str()).collect()
        }
    }

    pub(super) fn continue_trace(span: &Span, headers: &HeaderMap) {
        let parent = global::get_text_map_propagator(|propagator| propagator.extract(&Headers(headers)));
        // It fails if nobody collects spans.
        let _ = span.set_parent(parent);
    }
}
