"""The states of EC2's instances and of a load balancer's targets, for the simulation and the replay.

Pure: no clock and no chance. A time is given, in seconds since the run began, and so is how long a change
takes. The simulation adds faults, delays and a scheduler; the replay adds recorded capacity, money and what
its calls take. What a pool has room for, and whom a launch gets it from, is `lab.market`'s.

**Instances**, `instances.TRANSITIONS`. The source is the row of docs/aws-contract.md that says so:

| change | out of | by way of | into | source |
|---|---|---|---|---|
| launch | | pending | running | `CreateFleet` |
| start | stopped | pending | running | `StartInstances` |
| stop, by us or by an interruption | pending, running | stopping | stopped | `StopInstances` |
| terminate, by us or by EC2 | these, stopping, stopped | shutting-down | terminated | `TerminateInstances` |

Whatever else is asked of an instance changes nothing. A warning doesn't either: for two minutes the instance
is what it was, and EC2 may take the warning back (`NOTICE_S`). What has ended is described for a while yet
(`DescribeInstances`), and its Spot request says for longer why (`DescribeSpotInstanceRequests`).

**Targets**, `targets.Target.state`. The first row that holds is what the load balancer says:

| if | it is | source |
|---|---|---|
| it was deregistered, until the delay is over | draining | `deregistration_delay.timeout_seconds` |
| its instance is stopped or terminated | unused | `TargetState` |
| its instance ends or stops | unhealthy | none: its checks fail |
| it has passed its checks | healthy | `RegisterTargets` |
| it is new | initial | `RegisterTargets` |
| none of these | unhealthy | `TargetState` |

One that drains is registered anew, and one that isn't there is deregistered without an error
(`RegisterTargets`, `DeregisterTargets`).

Where the two differ, on purpose: only the simulation refuses to stop what is pending, and to end Spot that
EC2 is stopping; in the replay no server fails, and what ends is unused at once.

The loopback benchmark has no part in this: nothing changes a state there. Its instances run and are healthy
for ever, as text that is made once. The local cloud speaks the API, and stays by itself.
"""
