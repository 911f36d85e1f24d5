# Two targets are all a newcomer needs: `make demo` and `make test`.

.PHONY: help demo demo-stop check test soak bench crds manifests release

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Show five simulated nodes in two pools get VFs and be drained (KEEP=1 leaves the cluster running)
	@tools/setup
	@tools/demo

demo-stop: ## End what `KEEP=1 make demo` left running
	@tools/demo --stop

check: ## The inner loop: format, lints, quick tests, a few on an API server (no lab, no release build)
	@tools/setup
	@tools/check

test: ## Run every check and test
	@tools/setup
	@tools/test

soak: ## Long runs with fresh seeds: properties, fuzzing, kills, all defects (MINUTES=30)
	@tools/setup
	@tools/soak

bench: ## Measure the operator beside a bare loop and the Go operator (ARGS=--help says what can be chosen)
	@tools/setup
	@tools/bench $(ARGS)

crds: ## Write deploy/crds from crates/api
	@cargo run --quiet --package vfleet -- crds --dir deploy/crds

manifests: crds ## Write deploy/ from the code: roles, the operator, admission and network policies, deploy/crds
	@cargo run --quiet --package vfleet -- manifests --dir deploy

release: ## Build the static programs into target/x86_64-unknown-linux-gnu/release
	@tools/release
