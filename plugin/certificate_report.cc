#include "plugin/certificate_report.h"

#include "base/certificate.h"
#include "base/log.h"
#include "base/tls.h"

namespace lunkeeper {

void CertificateReport::ReportEnds(const std::vector<std::function<std::vector<std::string>()>>& sources,
                                   absl::Time now, Metrics& metrics) {
  Metrics::Series ends;
  for (const auto& files : sources) {
    for (const std::string& file : files()) {
      const auto end = CertificateEnds(file);
      ends[{{"file", file}}] = end.ok() ? static_cast<double>(absl::ToUnixSeconds(*end)) : 0;
      if (end.ok()) Warn(file, *end, now);
    }
  }
  metrics.SetGauge("lunkeeper_certificate_end_seconds", "Until when a certificate is good, in Unix time",
                   ends);
}

void CertificateReport::Warn(const std::string& file, absl::Time end, absl::Time now) {
  if (end - now > kCertificateSoon) return;
  const auto last = warned_.find(file);
  // The clock may have been set back since.
  if (last != warned_.end() && now >= last->second && now - last->second < absl::Hours(24)) return;
  warned_[file] = now;
  const std::string ends = absl::FormatTime(absl::RFC3339_sec, end, absl::UTCTimeZone());
  LogWarn("serve", "a certificate ends soon, or has ended: see why it is not renewed (docs/install.md)",
          {{"file", file}, {"ends", ends}});
}

}  // namespace lunkeeper
