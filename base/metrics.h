#pragma once
// The program's metrics, for Prometheus. One object for the process, passed to each part that counts.
// Thread-safe; counting never fails and never blocks for longer than a map look-up. Label values come from a
// closed set (method names of our services, gRPC codes), so that no caller can make the number of series
// grow.
//
//   lunkeeper_rpc_duration_seconds{method,code}  histogram: finished calls
//   lunkeeper_rpc_running{method}                gauge: calls in progress, calls that wait for a grant
//   included lunkeeper_build_info{version,mode}           1

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace prometheus {
class Gauge;
class Histogram;
class Registry;
template <class T>
class Family;
}  // namespace prometheus

namespace lunkeeper {

class Metrics {
 public:
  explicit Metrics(const std::string& mode);
  ~Metrics();

  void RpcStarted(const std::string& method);
  void RpcFinished(const std::string& method, const std::string& code, absl::Duration duration);

  // A fact about the process as a whole. The first call for a name also decides its help text.
  void SetGauge(const std::string& name, const std::string& help, double value);
  // The same for each of these labels. Labels of earlier calls that are not among these read 0.
  using Labels = std::map<std::string, std::string>;
  using Series = std::map<Labels, double>;
  void SetGauge(const std::string& name, const std::string& help, const Series& values);
  // A count that somebody else keeps, since the process began; it never falls. With it the series is there
  // before the first event, so that its increase can be seen.
  void SetCounter(const std::string& name, const std::string& help, const Series& counts);
  // One more event of this kind.
  void CountEvent(const std::string& name, const std::string& help, const Labels& labels = {});
  // Adds one duration to a histogram.
  void ObserveDuration(const std::string& name, const std::string& help, const Labels& labels,
                       absl::Duration duration);

  // Lets ToText append what `source` writes at that time: figures that somebody else keeps. It may be called
  // until this object is destroyed, by several threads.
  void AddSource(std::function<std::string()> source);

  // Everything, in Prometheus' text format 0.0.4.
  std::string ToText() const;

 private:
  const std::unique_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Histogram>& durations_;
  prometheus::Family<prometheus::Gauge>& running_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::set<Labels>> given_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<std::string()>> sources_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
