# SPDX-License-Identifier: MIT
"""A Ray of its own for a test: small, silent, and gone afterwards."""
import contextlib
import os
import shutil
import tempfile
import time

# Nothing is told to anybody or written outside of the test's folder, and no process is started before it is needed. On
# a machine that is busy, processes take long to start: workers are as nice as the test, and nobody gives up on them.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_memory_monitor_refresh_ms": "0",
               "RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0",
               "RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "90",
               "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
               "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

STORE = 200 << 20   # bytes of the object store of a node


@contextlib.contextmanager
def local_ray(n_cpus=4):
    """One node. The processors are Ray's own count, which places actors; the machine may have fewer."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")   # paths of sockets have to be short
    begin = time.monotonic()
    ray.init(address="local", num_cpus=n_cpus, include_dashboard=False, object_store_memory=STORE, log_to_driver=False,
             _temp_dir=folder, logging_level="warning")
    print(f"ray started in {time.monotonic() - begin:.1f} s", flush=True)
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def several_nodes(n_nodes, n_cpus=2):
    """A cluster of nodes on this machine, each with processes and an object store of its own. Gives the cluster, whose
    nodes can be added and removed."""
    cluster = Cluster(initialize_head=True, connect=False,
                      head_node_args={"num_cpus": n_cpus, "object_store_memory": STORE, "include_dashboard": False})
    try:
        for _ in range(n_nodes - 1):
            cluster.add_node(num_cpus=n_cpus, object_store_memory=STORE)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="warning")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
