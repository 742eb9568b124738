//! The agent's log on standard error, and with the feature `opentelemetry` its traces to a collector.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Fault;

/// The variables that name a collector, as every program with OpenTelemetry reads them.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

pub(super) struct Log {
    #[cfg(feature = "opentelemetry")]
    traces: Option<traces::Traces>,
}

impl Log {
    pub(super) fn start() -> Result<Self, Fault> {
        let filter = std::env::var("HALLPASS_LOG").unwrap_or_else(|_| "info".to_owned());
        let level: Level = filter
            .parse()
            .map_err(|_| Fault::Usage(format!("HALLPASS_LOG '{filter}' is none of error, warn, info, debug, trace")))?;
        let lines = tracing_subscriber::fmt::layer()
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .with_filter(LevelFilter::from_level(level));
        let collector =
            COLLECTOR.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        let subscriber = tracing_subscriber::registry().with(lines);
        #[cfg(feature = "opentelemetry")]
        {
            let traces = collector.map(traces::Traces::start).transpose()?;
            subscriber.with(traces.as_ref().map(traces::Traces::layer)).init();
            Ok(Self { traces })
        }
        #[cfg(not(feature = "opentelemetry"))]
        {
            subscriber.init();
            if let Some(name) = collector {
                tracing::info!("{name} is set, but this hallpass was built without OpenTelemetry: there are no traces");
            }
            Ok(Self {})
        }
    }

    /// Sends the remaining traces.
    pub(super) fn end(self) {
        #[cfg(feature = "opentelemetry")]
        self.traces.into_iter().for_each(traces::Traces::end);
    }
}

#[cfg(feature = "opentelemetry")]
mod traces {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry::{KeyValue, global};
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::{Level, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::registry::LookupSpan;

    use crate::exit::Fault;

    pub(super) struct Traces(SdkTracerProvider);

    impl Traces {
        /// The collector's address, headers, sampling and so on are those of OpenTelemetry's own variables.
        pub(super) fn start(collector: &str) -> Result<Self, Fault> {
            let refuse = |why: &str| Fault::Usage(format!("{collector}: {why}"));
            let address = std::env::var(collector).map_err(|_| refuse("it is not text"))?;
            if !address.starts_with("http://") {
                return Err(refuse(&format!(
                    "'{address}' is not an http:// address: traces go to a collector on this machine or in a network that is \
                     trusted, such as http://127.0.0.1:4318"
                )));
            }
            let exporter = SpanExporter::builder()
                .with_http()
                .build()
                .map_err(|error| refuse(&format!("cannot send traces to '{address}': {error}")))?;
            let mut resource = Resource::builder();
            if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
                resource = resource.with_service_name("hallpass");
            }
            let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
            let provider =
                SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
            global::set_text_map_propagator(TraceContextPropagator::new());
            Ok(Self(provider))
        }

        /// Only spans of hallpass. Exporting the spans of the exporter's own connections would make new spans without end.
        pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
        where
            S: Subscriber + for<'span> LookupSpan<'span>,
        {
            let tracer = self.0.tracer("hallpass");
            let own = Targets::new().with_target("hallpass", Level::DEBUG);
            tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false).with_filter(own)
        }

        pub(super) fn end(self) {
            if let Err(error) = self.0.shutdown() {
                tracing::warn!("the last traces could not be sent: {error}");
            }
        }
    }
}
