//! Addresses and what answers at them.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, RawQuery, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hallpass_lab::LabError;
use serde_json::json;

use crate::answer;
use crate::jobs::{Jobs, Refused, Watch};
use crate::query::Query;
use crate::stream::{self, Teller};
use crate::{Settings, guard, menu, page};

/// The most bytes of a scenario's text.
const SCENARIO_MAX: usize = 200_000;

#[derive(Clone)]
struct Shared {
    settings: Arc<Settings>,
    jobs: Jobs,
    /// Scenarios and games take milliseconds: they have places of their own, so that they never wait for long work.
    quick: Jobs,
}

/// A pure function from a request to a document.
type Answer = fn(Query, &Watch) -> Result<String, LabError>;
/// The same, for one that tells how far it is.
type Story = fn(Query, &Watch, &mut Teller) -> Result<String, LabError>;

pub(crate) fn router(settings: Settings) -> Router {
    let shared = Shared { settings: Arc::new(settings), jobs: Jobs::new(), quick: Jobs::new() };
    let json = "application/json";
    Router::new()
        .route("/api/about", get(about))
        .route("/api/run", answers(answer::run, json))
        .route("/api/state", answers(answer::state, json))
        .route("/api/trace.json", answers(answer::trace_json, json))
        .route("/api/trace.svg", answers(answer::trace_svg, "image/svg+xml"))
        .route("/api/trace.txt", answers(answer::trace_text, "text/plain; charset=utf-8"))
        .route("/api/scenario", quickly(answer::scenario, json))
        .route("/api/trap", answers(answer::trap, json))
        .route("/api/views", answers(answer::views, json))
        .route("/api/play", post(play).layer(DefaultBodyLimit::max(SCENARIO_MAX)))
        .route("/api/check", tells(answer::check))
        .route("/api/sweep", tells(answer::sweep))
        .route("/api/calculate", tells(answer::calculate))
        .fallback(file)
        .layer(middleware::from_fn_with_state(shared.clone(), protect))
        .with_state(shared)
}

fn answers(answer: Answer, kind: &'static str) -> axum::routing::MethodRouter<Shared> {
    get(move |State(shared): State<Shared>, RawQuery(query): RawQuery| async move {
        document(&shared.jobs, answer, query, kind).await
    })
}

/// The same, for what is short.
fn quickly(answer: Answer, kind: &'static str) -> axum::routing::MethodRouter<Shared> {
    get(move |State(shared): State<Shared>, RawQuery(query): RawQuery| async move {
        document(&shared.quick, answer, query, kind).await
    })
}

async fn document(jobs: &Jobs, answer: Answer, query: Option<String>, kind: &'static str) -> Response {
    match Query::parse(&query.unwrap_or_default()) {
        Ok(query) => reply(jobs.run(move |watch| answer(query, watch)).await, kind),
        Err(error) => refusal(&error),
    }
}

fn tells(story: Story) -> axum::routing::MethodRouter<Shared> {
    get(move |State(shared): State<Shared>, RawQuery(query): RawQuery| async move {
        let query = match Query::parse(&query.unwrap_or_default()) {
            Ok(query) => query,
            Err(error) => return refusal(&error),
        };
        let watch = Jobs::watch();
        let (mut teller, events) = stream::events(watch.clone());
        let started = shared.jobs.start(watch, move |watch| {
            let result = story(query, watch, &mut teller);
            teller.finish(result.map_err(|error| in_words_of_the_page(&error)));
        });
        match started.await {
            Some(_) => ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response(),
            None => busy(),
        }
    })
}

/// Never waits for work.
async fn about() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], menu::about().to_string()).into_response()
}

async fn play(State(shared): State<Shared>, body: Bytes) -> Response {
    let Ok(text) = String::from_utf8(body.to_vec()) else {
        return refusal(&LabError("the scenario is not UTF-8".to_owned()));
    };
    reply(shared.quick.run(move |_| answer::play(&text)).await, "application/json")
}

fn reply(result: Result<Result<String, LabError>, Refused>, kind: &'static str) -> Response {
    match result {
        Ok(Ok(document)) => ([(header::CONTENT_TYPE, kind)], document).into_response(),
        Ok(Err(error)) => refusal(&error),
        Err(Refused::Busy) => busy(),
        Err(Refused::Broken) => broken(),
    }
}

/// The laboratory's sentences are those of the command line; the page has fields instead of flags.
fn in_words_of_the_page(error: &LabError) -> String {
    let text = error.to_string().replace("--option ", "").replace("--order fifo", "order=fifo");
    text.replace("--entries", "requests").replace("--nodes", "nodes").replace("--faults", "faults")
}

fn refusal(error: &LabError) -> Response {
    let document = json!({"error": in_words_of_the_page(error)}).to_string();
    (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "application/json")], document).into_response()
}

fn busy() -> Response {
    let document = json!({"error": "the laboratory is busy; try again in a moment"}).to_string();
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, "application/json")], document).into_response()
}

fn broken() -> Response {
    let document =
        json!({"error": "the laboratory failed at this, which is a bug; please report the link"}).to_string();
    (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "application/json")], document).into_response()
}

async fn file(uri: Uri) -> Response {
    match page::find(uri.path()) {
        Some((kind, bytes)) => ([(header::CONTENT_TYPE, kind)], bytes).into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such page").into_response(),
    }
}

/// Before and after everything: who asks, and what a browser may do with the answer.
async fn protect(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = match guard::check(request.headers(), &shared.settings.hosts) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    let headers = response.headers_mut();
    let policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; frame-ancestors 'none'; \
                  base-uri 'none'; form-action 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // The next version of the program has another page at the same address.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
