// A thin layer over prometheus-cpp, whose registry is thread-safe by itself. Asking it for a family or a
// series that exists returns that one, so nothing has to be declared before it is counted.
#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace lunkeeper {
namespace {

// From a lookup in memory to a NodeStage that waited a minute for a fence.
// Buckets must never change for a name: rates over an upgrade would make no sense.
const prometheus::Histogram::BucketBoundaries kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                          0.5,   1,      2.5,   5,    10,    30,   60,  120};

}  // namespace

Metrics::Metrics(const std::string& mode)
    : registry_(std::make_unique<prometheus::Registry>()),
      durations_(prometheus::BuildHistogram()
                     .Name("lunkeeper_rpc_duration_seconds")
                     .Help("How long finished calls took, by method and gRPC code")
                     .Register(*registry_)),
      running_(prometheus::BuildGauge()
                   .Name("lunkeeper_rpc_running")
                   .Help("Calls in progress, by method")
                   .Register(*registry_)) {
  prometheus::BuildGauge()
      .Name("lunkeeper_build_info")
      .Help("Which program this is")
      .Register(*registry_)
      .Add({{"version", LUNKEEPER_VERSION}, {"mode", mode}})
      .Set(1);
}

Metrics::~Metrics() = default;

void Metrics::RpcStarted(const std::string& method) { running_.Add({{"method", method}}).Increment(); }

// The series are few (methods times codes), so one look-up for each call is cheap enough.
void Metrics::RpcFinished(const std::string& method, const std::string& code, absl::Duration duration) {
  running_.Add({{"method", method}}).Decrement();
  durations_.Add({{"method", method}, {"code", code}}, kSeconds).Observe(absl::ToDoubleSeconds(duration));
}

void Metrics::SetGauge(const std::string& name, const std::string& help, double value) {
  prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add({}).Set(value);
}

void Metrics::SetGauge(const std::string& name, const std::string& help, const Series& values) {
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
  absl::MutexLock lock(&mutex_);
  // 0 and not removed, so that sums and alerts see the value end and not the series.
  std::set<Labels>& given = given_[name];
  for (const Labels& labels : given)
    if (!values.contains(labels)) family.Add(labels).Set(0);
  for (const auto& [labels, value] : values) {
    family.Add(labels).Set(value);
    given.insert(labels);
  }
}

void Metrics::SetCounter(const std::string& name, const std::string& help, const Series& counts) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  absl::MutexLock lock(&mutex_);  // two at once would count the difference twice
  for (const auto& [labels, count] : counts) {
    auto& counter = family.Add(labels);
    counter.Increment(count - counter.Value());
  }
}

void Metrics::CountEvent(const std::string& name, const std::string& help, const Labels& labels) {
  prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels).Increment();
}

void Metrics::ObserveDuration(const std::string& name, const std::string& help, const Labels& labels,
                              absl::Duration duration) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  family.Add(labels, kSeconds).Observe(absl::ToDoubleSeconds(duration));
}

void Metrics::AddSource(std::function<std::string()> source) {
  absl::MutexLock lock(&mutex_);
  sources_.push_back(std::move(source));
}

// Sources are called without the lock: one may wait for another process, and nobody who counts waits for it.
std::string Metrics::ToText() const {
  std::string text = prometheus::TextSerializer().Serialize(registry_->Collect());
  std::vector<std::function<std::string()>> sources;
  {
    absl::MutexLock lock(&mutex_);
    sources = sources_;
  }
  for (const auto& source : sources) text += source();
  return text;
}

}  // namespace lunkeeper
