#!/usr/bin/env bash
# Ask a decision model of a Triton server with nothing but curl.
#
#   examples/triton/ask.sh "I was charged twice" [http://localhost:8000] [starter_decision]
set -euo pipefail

text=${1:?usage: ask.sh TEXT [SERVER] [MODEL]}
server=${2:-http://localhost:8000}
model=${3:-starter_decision}

questions='{
  "team":   {"type": "choice", "instructions": "Which team should handle this?",
             "criteria": {"billing": "charges, invoices, refunds", "support": "errors, outages"}},
  "urgent": {"type": "noul", "instructions": "Is the customer in a hurry?"}
}'

# The body is JSON in JSON: inputs are texts, and two of them hold JSON themselves.
quoted() { printf '%s' "$1" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))'; }

curl --silent --show-error --fail-with-body --max-time 30 \
  --header 'Content-Type: application/json' \
  --data "{\"STATE\": $(quoted "$text"), \"QUESTIONS\": $(quoted "$questions")}" \
  "$server/v2/models/$model/generate"
echo
