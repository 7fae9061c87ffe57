#!/usr/bin/env bash
# Runs every fuzz target of a build for a short while, one on each processor at a time: fuzz.sh BUILD_FOLDER JUNIT_FILE.
# FUZZ_SECONDS (default 10) each.
set -u
build=$1 junit=$2
mapfile -t fuzzers < <(grep . "$build/fuzzers")
((${#fuzzers[@]})) || { echo "no fuzz target in $build" >&2; exit 1; }

fuzz() {  # fuzz TARGET: its test case; what it said goes to stderr
  local program corpus="$build/corpus/$1" failure=
  program=$(find "$build" -type f -name "$1" -perm -u+x | head -n 1)
  mkdir -p "$corpus"
  "$program" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$build/corpus/$1-" "$corpus" \
    >"$corpus.log" 2>&1 || failure="<failure/>"
  { echo "== $1"; cat "$corpus.log"; } >&2
  echo "<testcase classname=\"fuzz\" name=\"$1\">$failure</testcase>"
}
export build FUZZ_SECONDS
export -f fuzz
cases=$(printf '%s\n' "${fuzzers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}')
echo "<testsuite name=\"fuzz\">$cases</testsuite>" >"$junit"
[[ $cases != *"<failure/>"* && $(grep -c "<testcase" "$junit") == "${#fuzzers[@]}" ]]
