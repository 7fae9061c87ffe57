#pragma once
// Until when the certificates of this process are good. An expired one stops heartbeats and grants at once,
// and what renews it may have failed unseen, on a storage host above all: so the metric is for an alert, and
// the log has a warning each day of the last two weeks. One thread.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics.h"

namespace lunkeeper {

class CertificateReport {
 public:
  // `sources` name the files. One that cannot be read has 0 as its end; doctor says why.
  void ReportEnds(const std::vector<std::function<std::vector<std::string>()>>& sources, absl::Time now,
                  Metrics& metrics);

 private:
  void Warn(const std::string& file, absl::Time end, absl::Time now);

  std::map<std::string, absl::Time> warned_;  // when last
};

}  // namespace lunkeeper
