#!/usr/bin/env bash
# A comparison on a real Slurm of one node, whose jobs are requeued while they train.
#
# Needs root and Debian's packages slurmctld, slurmd, slurm-client, munge:
#   apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
# Fails if a requeued cell does not go on, or if its bits differ from those of a local run.
# Daemons, keys and state are in a temporary folder, and end with this script.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
work=$(mktemp -d)
chmod 755 "$work"
host=$(hostname -s)
end() { kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null || true; sleep 1; rm -rf "$work"; }
trap end EXIT

# munge: who sent a message.
mkdir -m 700 "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=128 count=1 status=none
chmod 600 "$work/munge/key"
mkdir -m 755 "$work/run"
munged --force --key-file="$work/munge/key" --socket="$work/run/munge.socket" --pid-file="$work/munged.pid" \
  --log-file="$work/munged.log" --seed-file="$work/munge/seed"

memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
cat > "$work/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/run/munge.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
BatchStartTimeout=10
MinJobAge=300
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
mkdir "$work/state" "$work/spool"
export SLURM_CONF=$work/slurm.conf
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF" -N "$host"
for _ in $(seq 60); do sinfo -h -o %t 2>/dev/null | grep -q idle && break; sleep 1; done
sinfo

words="compare --task copy --encodings none,rotary --seeds 1,2 examples=3000 epochs=8 train_length=6 width=32 heads=2
  feed_forward=64 layers=1 length_multiples=1 test_examples=20 batch_tokens=256 device=cpu precision=float32"
export OMP_NUM_THREADS=1
$python -m ropewalk.cli $words --out "$work/local" > "$work/local.log"
$python -m ropewalk.cli $words --out "$work/cluster" --launcher slurm --launcher-args partition=main,minutes=60 \
  > "$work/cluster.log" 2>&1 &
command=$!

# Preempt jobs while they train: the same signal as before a job of higher priority takes the node.
requeued=0
for _ in $(seq 900); do
  kill -0 $command 2>/dev/null || break
  for events in "$work"/cluster/cells/*/*/events.jsonl; do
    [[ $requeued -lt 1 && -e $events ]] && tail -n 1 "$events" | grep -q '"training"' || continue
    job=$(head -n 1 "$events" | sed -n 's/.*slurm job \([0-9_]*\)".*/\1/p')
    if [[ -n $job ]] && squeue -h -r -t R -o %i | grep -qx "$job" && scancel --signal=USR2 "$job" 2>/dev/null; then
      requeued=$((requeued + 1))
      echo "warned job $job while it trained, as before preemption; Slurm starts it again after two minutes"
      sleep 8
    fi
  done
  sleep 0.3
done
wait $command || { tail -n 20 "$work/cluster.log"; tail -n 20 "$work"/slurm*.log; exit 1; }
cat "$work/cluster.log"
[[ $requeued -gt 0 ]] || { echo "no job was running long enough to be requeued"; exit 1; }
for cell in "$work"/local/cells/*/*; do
  other=$work/cluster/${cell#"$work"/local/}
  cmp "$cell/model.safetensors" "$other/model.safetensors"
done
echo "requeued $requeued times; the bits are those of a local run"
