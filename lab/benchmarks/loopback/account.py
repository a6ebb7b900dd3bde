"""What the server answers: an account that was filled beforehand, and remembers what is written to its table.

It takes every condition for met, launches whatever is asked for, and knows nothing of errors: measured is
the path on a day on which AWS does what it should.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

Item = Mapping[str, Mapping[str, Any]]
"""As DynamoDB's wire format has it: attribute → {type: value}."""

QUERY_PAGE_BYTES = 1_000_000
"""DynamoDB reads this much for one page of a Query."""

INSTANCES_PAGE = 1000
"""The most that DescribeInstances shows at once, and what it shows if nobody asks for less."""


class UnknownRequestError(Exception):
    """The measured code has begun to ask for something that this server doesn't know: teach it."""


class LoopbackAccount:
    """One region's table, instances, target groups and parameters."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Calls per service and action, such as "dynamodb.GetItem"."""
        self._items: dict[tuple[str, str], Item] = {}
        self._marked: dict[tuple[str, str], Item] = {}
        self._parameters: dict[str, str] = {}
        self._instances: dict[str, list[Mapping[str, str]]] = {}
        self._pages: dict[tuple[str, int], list[str]] = {}
        self._launched = 0
        self._actions: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
            "dynamodb.BatchGetItem": self._batch_get_item,
            "dynamodb.DeleteItem": self._delete,
            "dynamodb.GetItem": lambda asked: _found(self._items.get(_key(asked["Key"]))),
            "dynamodb.PutItem": self._put,
            "dynamodb.Query": self._query,
            "dynamodb.TransactWriteItems": self._transact,
            "dynamodb.UpdateItem": self._update,
            "ssm.GetParameters": self._get_parameters,
            "ssm.GetParametersByPath": self._parameters_by_path,
            "sqs.SendMessage": _send_message,
        }
        self._query_actions: Mapping[str, Callable[[Mapping[str, str]], str]] = {
            "ec2.CreateFleet": self._create_fleet,
            "ec2.DescribeInstances": self._describe_instances,
            # Nobody is warned that the events didn't tell about.
            "ec2.DescribeSpotInstanceRequests": lambda _: "<spotInstanceRequestSet/>",
            "elbv2.DescribeTargetHealth": self._describe_target_health,
        }

    def json_call(self, call: str, body: bytes) -> bytes:
        """The answer to a call of a service that speaks JSON."""
        self.counts[call] += 1
        if call not in self._actions:
            raise UnknownRequestError(f"{call}: the loopback server has no answer to it")
        return json.dumps(self._actions[call](json.loads(body))).encode()

    def query_call(self, body: bytes) -> bytes:
        """The answer to a call of a service that takes forms and answers XML.

        An action that nobody taught it is answered with an empty result: no warnings, no prices, nothing new.
        """
        form = dict(parse_qsl(body.decode()))
        action = form["Action"]
        service = "elbv2" if form["Version"] == "2015-12-01" else "ec2"
        call = f"{service}.{action}"
        self.counts[call] += 1
        answer = self._query_actions[call](form) if call in self._query_actions else ""
        if service == "elbv2":
            return _elbv2(action, answer)
        return (
            f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>{REQUEST_ID}</requestId>{answer}</{action}Response>"
        ).encode()

    @property
    def items(self) -> Iterable[Item]:
        """Everything in the table."""
        return self._items.values()

    def load(self, what: Mapping[str, Any]) -> None:
        """Take in items, parameters (name → value) and instances (service → facts), and mark that state."""
        self._items |= {_key(item): item for item in what.get("items", ())}
        self._parameters |= what.get("parameters", {})
        self._instances |= what.get("instances", {})
        self._pages.clear()
        self._marked = dict(self._items)

    def rewind(self, partition: str) -> None:
        """Make the partition ("": the table) what it was when marked: to measure the same once more."""
        if not partition:
            self._items = dict(self._marked)
            return
        others = {key: item for key, item in self._items.items() if key[0] != partition}
        self._items = others | {key: item for key, item in self._marked.items() if key[0] == partition}

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]  # exactly what is meant

    def _batch_get_item(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        responses = {}
        for table, wanted in asked["RequestItems"].items():
            found = (self._items.get(_key(key)) for key in wanted["Keys"])
            responses[table] = [item for item in found if item is not None]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def _transact(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        for write in asked["TransactItems"]:
            ((kind, request),) = write.items()
            _WRITES[kind](self, request)
        return {}

    def _put(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._items[_key(asked["Item"])] = asked["Item"]
        return {}

    def _delete(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._items.pop(_key(asked["Key"]), None)
        return {}

    def _update(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        key = _key(asked["Key"])
        item = {**asked["Key"], **self._items.get(key, {})}
        names, values = asked.get("ExpressionAttributeNames", {}), asked.get("ExpressionAttributeValues", {})
        for verb, terms in _clauses(asked["UpdateExpression"]):
            for term in terms:
                name, *value = term.replace("=", " ").split()
                name = names.get(name, name)
                if verb == "REMOVE":
                    item.pop(name, None)
                elif verb == "ADD":
                    item[name] = _sum(item.get(name), values[value[0]])
                else:
                    item[name] = values[value[0]]
        self._items[key] = item
        return {"Attributes": item} if asked.get("ReturnValues") == "ALL_NEW" else {}

    def _query(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """The partition's items by sort key, in pages as large as DynamoDB's. Filters it takes for passed."""
        partition = _partition(asked)
        start = _key(asked["ExclusiveStartKey"])[1] if "ExclusiveStartKey" in asked else None
        sorts = sorted(sort for owner, sort in self._items if owner == partition)
        if not asked.get("ScanIndexForward", True):
            sorts.reverse()
        if start is not None:
            sorts = sorts[sorts.index(start) + 1 :]
        page: list[Item] = []
        size = 0
        for sort in sorts:
            item = self._items[partition, sort]
            size += _size({"M": item})
            if page and size > QUERY_PAGE_BYTES:
                last = {name: page[-1][name] for name in ("PK", "SK")}
                return {
                    "Items": page,
                    "Count": len(page),
                    "ScannedCount": len(page),
                    "LastEvaluatedKey": last,
                }
            page.append(item)
        return {"Items": page, "Count": len(page), "ScannedCount": len(page)}

    def _parameter(self, name: str) -> Mapping[str, Any]:
        return {
            "Name": name,
            "Type": "String",
            "Value": self._parameters[name],
            "Version": 1,
            "LastModifiedDate": 1795000000.0,
            "ARN": f"arn:aws:ssm:us-east-1:000000000000:parameter{name}",
            "DataType": "text",
        }

    def _get_parameters(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        there = [name for name in asked["Names"] if name in self._parameters]
        missing = [name for name in asked["Names"] if name not in self._parameters]
        return {"Parameters": [self._parameter(name) for name in there], "InvalidParameters": missing}

    def _parameters_by_path(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        below = [name for name in self._parameters if name.startswith(asked["Path"].rstrip("/") + "/")]
        return {"Parameters": [self._parameter(name) for name in below]}

    def _create_fleet(self, form: Mapping[str, str]) -> str:
        """As many instances as asked for, from the first pools in turn, as if there were room everywhere."""
        count = int(form["TargetCapacitySpecification.TotalTargetCapacity"])
        lifecycle = form["TargetCapacitySpecification.DefaultTargetCapacityType"]
        overrides = "LaunchTemplateConfigs.1.Overrides."
        pools = sum(f"{overrides}{n}.InstanceType" in form for n in range(1, 400))
        entries = []
        for n in range(min(count, pools, SPREAD_OVER)):
            ids = [self._new_instance_id() for _ in range(n, count, min(count, pools, SPREAD_OVER))]
            override = f"{overrides}{n + 1}"
            entries.append(
                _FLEET_INSTANCE.format(
                    template=form["LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId"],
                    version=form["LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version"],
                    instance_type=form[f"{override}.InstanceType"],
                    subnet=form[f"{override}.SubnetId"],
                    lifecycle=lifecycle,
                    ids="".join(f"<item>{id_}</item>" for id_ in ids),
                )
            )
        return (
            f"<fleetId>fleet-{self._launched:08x}</fleetId><errorSet/>"
            f"<fleetInstanceSet>{''.join(entries)}</fleetInstanceSet>"
        )

    def _new_instance_id(self) -> str:
        self._launched += 1
        return f"i-f{self._launched:016x}"

    def _describe_instances(self, form: Mapping[str, str]) -> str:
        """One page of the instances that the first filter or the IDs name."""
        if "InstanceId.1" in form:
            wanted = {value for name, value in form.items() if name.startswith("InstanceId.")}
            named = (i for all_ in self._instances.values() for i in all_ if i["id"] in wanted)
            return f"<reservationSet>{''.join(map(_described, named))}</reservationSet>"
        service = form["Filter.1.Value.1"]
        size = min(int(form.get("MaxResults", INSTANCES_PAGE)), INSTANCES_PAGE)
        pages = self._pages.get((service, size))
        if pages is None:
            shown = [_described(i) for i in self._instances.get(service, ())]
            pages = ["".join(shown[start : start + size]) for start in range(0, len(shown), size)] or [""]
            self._pages[service, size] = pages
        number = int(form.get("NextToken", "0"))
        token = f"<nextToken>{number + 1}</nextToken>" if number + 1 < len(pages) else ""
        return f"<reservationSet>{pages[number]}</reservationSet>{token}"

    def _describe_target_health(self, form: Mapping[str, str]) -> str:
        """Every instance of the service that the target group is called after, healthy."""
        service = form["TargetGroupArn"].split("/")[1]
        key = (f"health of {service}", 0)
        if key not in self._pages:
            healthy = (_HEALTHY.format(id=i["id"]) for i in self._instances.get(service, ()))
            self._pages[key] = [f"<TargetHealthDescriptions>{''.join(healthy)}</TargetHealthDescriptions>"]
        return self._pages[key][0]


_WRITES: Mapping[str, Callable[[LoopbackAccount, Mapping[str, Any]], Any]] = {
    "ConditionCheck": lambda _account, _request: None,
    "Delete": LoopbackAccount._delete,
    "Put": LoopbackAccount._put,
    "Update": LoopbackAccount._update,
}

REQUEST_ID = "7a62c49f-347e-4fc4-9331-6e8e7a9a0001"

SPREAD_OVER = 3
"""Pools that a fleet's instances come from: price-capacity-optimized rarely takes one only, nor many."""


def _key(item: Item) -> tuple[str, str]:
    return item["PK"]["S"], item["SK"]["S"]


def _found(item: Item | None) -> Mapping[str, Any]:
    return {} if item is None else {"Item": item}


def _sum(number: Mapping[str, Any] | None, more: Mapping[str, Any]) -> Mapping[str, str]:
    return {"N": str(int((number or {"N": "0"})["N"]) + int(more["N"]))}


def _clauses(expression: str) -> Iterator[tuple[str, list[str]]]:
    """(verb, terms) of an update expression of simple terms."""
    parts = re.split(r"\b(SET|REMOVE|ADD|DELETE)\b", expression)
    for verb, terms in zip(parts[1::2], parts[2::2], strict=True):
        if verb == "DELETE" or "(" in terms:
            raise UnknownRequestError(
                f"the loopback server knows SET, ADD and REMOVE of whole attributes: {expression}"
            )
        yield verb, [term.strip() for term in terms.split(",")]


def _partition(asked: Mapping[str, Any]) -> str:
    """What the partition key is compared with."""
    is_equal = re.fullmatch(r"\(?(#?\w+) = (:\w+)\)?", asked["KeyConditionExpression"])
    if is_equal is None:
        raise UnknownRequestError(
            f"the loopback server reads whole partitions: {asked['KeyConditionExpression']}"
        )
    return str(asked["ExpressionAttributeValues"][is_equal.group(2)]["S"])


def _size(value: Mapping[str, Any]) -> int:
    """About what DynamoDB counts: names and values."""
    ((kind, content),) = value.items()
    if kind == "M":
        return 3 + sum(len(name) + 1 + _size(part) for name, part in content.items())
    if kind == "L":
        return 3 + sum(1 + _size(part) for part in content)
    return len(str(content))


def _send_message(asked: Mapping[str, Any]) -> Mapping[str, str]:
    digest = hashlib.md5(asked["MessageBody"].encode(), usedforsecurity=False).hexdigest()
    return {"MessageId": REQUEST_ID, "MD5OfMessageBody": digest}


def _elbv2(action: str, answer: str) -> bytes:
    return (
        f'<{action}Response xmlns="http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/">'
        f"<{action}Result>{answer}</{action}Result>"
        f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
    ).encode()


_HEALTHY = (
    "<member><Target><Id>{id}</Id><Port>8081</Port></Target><HealthCheckPort>8081</HealthCheckPort>"
    "<TargetHealth><State>healthy</State></TargetHealth></member>"
)

_FLEET_INSTANCE = (
    "<item><launchTemplateAndOverrides><launchTemplateSpecification><launchTemplateId>{template}</launchTemplateId>"
    "<version>{version}</version></launchTemplateSpecification><overrides><instanceType>{instance_type}</instanceType>"
    "<subnetId>{subnet}</subnetId></overrides></launchTemplateAndOverrides><lifecycle>{lifecycle}</lifecycle>"
    "<instanceIds>{ids}</instanceIds><instanceType>{instance_type}</instanceType></item>"
)


def _described(instance: Mapping[str, str]) -> str:
    return _INSTANCE.format(**instance)


def _tag(key: str, value: str) -> str:
    return f"<item><key>{key}</key><value>{value}</value></item>"


# A Spot instance with one volume and one network interface: parsing its fields is most of a tick's work.
_INSTANCE = (
    "<item><reservationId>r-0a1b2c3d4e5f60718</reservationId><ownerId>000000000000</ownerId><groupSet/>"
    "<instancesSet><item>"
    "<instanceId>{id}</instanceId><imageId>ami-0a1b2c3d4e5f60718</imageId>"
    "<instanceState><code>16</code><name>running</name></instanceState>"
    "<privateDnsName>ip-10-0-0-1.ec2.internal</privateDnsName><dnsName/><reason/><amiLaunchIndex>0</amiLaunchIndex>"
    "<productCodes/><instanceType>{instance_type}</instanceType><launchTime>2026-11-20T07:00:00.000Z</launchTime>"
    "<placement><availabilityZoneId>use1-az1</availabilityZoneId><availabilityZone>{zone}</availabilityZone>"
    "<groupName/><tenancy>default</tenancy></placement>"
    "<monitoring><state>disabled</state></monitoring><subnetId>subnet-0a1b2c3d4e5f60718</subnetId>"
    "<vpcId>vpc-0a1b2c3d4e5f60718</vpcId><privateIpAddress>10.0.0.1</privateIpAddress>"
    "<sourceDestCheck>true</sourceDestCheck><groupSet><item><groupId>sg-0a1b2c3d4e5f60718</groupId>"
    "<groupName>spotrelay-demo-Instances</groupName></item></groupSet><architecture>x86_64</architecture>"
    "<rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/xvda</rootDeviceName>"
    "<blockDeviceMapping><item><deviceName>/dev/xvda</deviceName><ebs><volumeId>vol-0a1b2c3d4e5f60718</volumeId>"
    "<status>attached</status><attachTime>2026-11-20T07:00:01.000Z</attachTime>"
    "<deleteOnTermination>true</deleteOnTermination></ebs></item></blockDeviceMapping>"
    "<instanceLifecycle>spot</instanceLifecycle><spotInstanceRequestId>sir-0a1b2c3d</spotInstanceRequestId>"
    "<virtualizationType>hvm</virtualizationType><clientToken>fleet-0a1b2c3d-0</clientToken><tagSet>"
    + _tag("spotrelay:service", "{service}")
    + _tag("spotrelay:launch", "{launch}")
    + _tag("Name", "spotrelay {service}")
    + _tag("aws:ec2launchtemplate:id", "lt-0a1b2c3d4e5f60718")
    + _tag("aws:ec2launchtemplate:version", "1")
    + _tag("aws:ec2:fleet-id", "fleet-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
    + "</tagSet><hypervisor>xen</hypervisor><networkInterfaceSet><item>"
    "<networkInterfaceId>eni-0a1b2c3d4e5f60718</networkInterfaceId><subnetId>subnet-0a1b2c3d4e5f60718</subnetId>"
    "<vpcId>vpc-0a1b2c3d4e5f60718</vpcId><description/><ownerId>000000000000</ownerId><status>in-use</status>"
    "<macAddress>02:00:00:00:00:01</macAddress><privateIpAddress>10.0.0.1</privateIpAddress>"
    "<privateDnsName>ip-10-0-0-1.ec2.internal</privateDnsName><sourceDestCheck>true</sourceDestCheck>"
    "<groupSet><item><groupId>sg-0a1b2c3d4e5f60718</groupId><groupName>spotrelay-demo-Instances</groupName></item>"
    "</groupSet><attachment><attachmentId>eni-attach-0a1b2c3d</attachmentId><deviceIndex>0</deviceIndex>"
    "<status>attached</status><attachTime>2026-11-20T07:00:00.000Z</attachTime>"
    "<deleteOnTermination>true</deleteOnTermination><networkCardIndex>0</networkCardIndex></attachment>"
    "<privateIpAddressesSet><item><privateIpAddress>10.0.0.1</privateIpAddress>"
    "<privateDnsName>ip-10-0-0-1.ec2.internal</privateDnsName><primary>true</primary></item></privateIpAddressesSet>"
    "<ipv6AddressesSet/><interfaceType>interface</interfaceType></item></networkInterfaceSet>"
    "<iamInstanceProfile><arn>arn:aws:iam::000000000000:instance-profile/spotrelay/demo</arn>"
    "<id>AIPA0A1B2C3D4E5F60718</id></iamInstanceProfile><ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport>"
    "<cpuOptions><coreCount>4</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>"
    "<capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference>"
    "</capacityReservationSpecification><hibernationOptions><configured>false</configured></hibernationOptions>"
    "<metadataOptions><state>applied</state><httpTokens>required</httpTokens>"
    "<httpPutResponseHopLimit>1</httpPutResponseHopLimit><httpEndpoint>enabled</httpEndpoint>"
    "<httpProtocolIpv6>disabled</httpProtocolIpv6><instanceMetadataTags>disabled</instanceMetadataTags>"
    "</metadataOptions><enclaveOptions><enabled>false</enabled></enclaveOptions><bootMode>uefi-preferred</bootMode>"
    "<platformDetails>Linux/UNIX</platformDetails><usageOperation>RunInstances</usageOperation>"
    "<usageOperationUpdateTime>2026-11-20T07:00:00.000Z</usageOperationUpdateTime>"
    "<privateDnsNameOptions><hostnameType>ip-name</hostnameType><enableResourceNameDnsARecord>false"
    "</enableResourceNameDnsARecord><enableResourceNameDnsAAAARecord>false</enableResourceNameDnsAAAARecord>"
    "</privateDnsNameOptions><maintenanceOptions><autoRecovery>default</autoRecovery></maintenanceOptions>"
    "<currentInstanceBootMode>uefi</currentInstanceBootMode><operator><managed>false</managed></operator>"
    "</item></instancesSet></item>"
)
