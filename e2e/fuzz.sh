#!/usr/bin/env bash
# Runs every fuzz target of a build for a short while: fuzz.sh BUILD_FOLDER JUNIT_FILE. FUZZ_SECONDS (default 10) each.
set -u
build=$1 junit=$2 failed=0
mapfile -t fuzzers < <(grep . "$build/fuzzers")
((${#fuzzers[@]})) || { echo "no fuzz target in $build" >&2; exit 1; }
cases=""
for name in "${fuzzers[@]}"; do
  program=$(find "$build" -type f -name "$name" -perm -u+x | head -n 1)
  corpus="$build/corpus/$name"
  mkdir -p "$corpus"
  echo "== $name"
  if "$program" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$build/corpus/$name-" "$corpus"; then
    cases+="<testcase classname=\"fuzz\" name=\"$name\"/>"
  else
    cases+="<testcase classname=\"fuzz\" name=\"$name\"><failure/></testcase>"
    failed=1
  fi
done
echo "<testsuite name=\"fuzz\">$cases</testsuite>" >"$junit"
exit $failed
