"""The files of a service's instances: their archive in the bootstrap bucket, and who may read what."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import AssetHashType, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from spotrelay.file.instance import bundle, fitting, packs
from spotrelay.file.instance.registry import ecr_registry
from spotrelay.file.instance.userdata import environment
from spotrelay.file.service import Service
from spotrelay.file.values.files import Bucket
from stacks.validation import acknowledge


@dataclass(frozen=True, slots=True)
class Files:
    """The archive of a service's files in the bootstrap bucket."""

    asset: s3_assets.Asset
    sha256: str
    """Of the archive. The asset's own hash is the CDK's, which hashes this one once more."""

    @property
    def archive(self) -> bundle.Archive:
        """How an instance fetches it."""
        return bundle.Archive(self.asset.s3_object_url, self.sha256)


def archive(scope: Construct, id_: str, service: Service) -> Files | None:
    """The archive; None for a service that needs no file of this machine.

    Raises:
        FilesError: a file went, or can't be read any more, since the service file was loaded.
    """
    if not bundle.is_needed(service):
        return None
    directory = tempfile.mkdtemp(prefix="spotrelay-files-")
    # The CDK copies it into its output while the app synthesizes.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = Path(directory) / f"{service.name}.tar.gz"
    files_hash = bundle.write(service, file)
    asset = s3_assets.Asset(
        scope, id_, path=str(file), asset_hash=files_hash, asset_hash_type=AssetHashType.CUSTOM
    )
    return Files(asset, files_hash)


def store(scope: Construct, service: Service) -> packs.Store:
    """Where packs of the service's set-up are: in the bootstrap bucket, where its files are, too.

    Raises:
        FilesError: as `archive` does.
    """
    qualifier = scope.node.try_get_context("@aws-cdk/core:bootstrapQualifier") or packs.DEFAULT_QUALIFIER
    bucket = packs.bootstrap_bucket(qualifier, Aws.ACCOUNT_ID, Aws.REGION)
    return packs.Store(bucket, fitting.fit(service, environment(service)))


def packed(role: iam.Role, service: Service, bucket: str, action: str) -> iam.PolicyStatement:
    """One action on the service's packs."""
    objects = f"arn:{Stack.of(role).partition}:s3:::{bucket}/{packs.prefix(service.name)}/*"
    shown = objects.replace(Stack.of(role).partition, "<AWS::Partition>")
    shown = shown.replace(Aws.ACCOUNT_ID, "<AWS::AccountId>").replace(Aws.REGION, "<AWS::Region>")
    acknowledge(
        role,
        f"AwsSolutions-IAM5[Resource::{shown}]",
        "The packs of one service, whose names are their hashes.",
    )
    return iam.PolicyStatement(
        actions=[action],
        resources=[objects],
        # As with the archive: once the bucket is deleted, somebody else may make one of that name.
        conditions={"StringEquals": {"aws:ResourceAccount": Stack.of(role).account}},
    )


def statements(role: iam.Role, service: Service, files: Files | None) -> Iterator[iam.PolicyStatement]:
    """What the instances' role may read and write for the service's files and its container, and no more."""
    partition = Stack.of(role).partition
    if files is not None:
        asset = files.asset
        yield iam.PolicyStatement(
            actions=["s3:GetObject"],
            resources=[f"arn:{partition}:s3:::{asset.s3_bucket_name}/{asset.s3_object_key}"],
            # The bucket's name can be guessed: once it is deleted, somebody else may make one of that name.
            conditions={"StringEquals": {"aws:ResourceAccount": Stack.of(role).account}},
        )
    for mount in service.file_mounts:
        if isinstance(mount.source, Bucket):
            yield from _bucket_statements(role, mount.source, is_writable=mount.is_writable)
    for model in service.models:
        if isinstance(model.source, Bucket):
            yield from _bucket_statements(role, model.source, is_writable=False, is_hashed=service.peers)
    if service.container is not None and (repository := ecr_registry(service.container)):
        yield iam.PolicyStatement(
            actions=["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[
                f"arn:{partition}:ecr:{repository.region}:{repository.account}:repository/{repository.name}"
            ],
        )
        yield iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"])
        # Session Manager's actions have the same finding, which is acknowledged beside them.


def _bucket_statements(
    role: iam.Role, bucket: Bucket, *, is_writable: bool, is_hashed: bool = False
) -> Iterator[iam.PolicyStatement]:
    arn = f"arn:{Stack.of(role).partition}:s3:::{bucket.name}"
    # A prefix may be the key of a single object, too.
    objects = [f"{arn}/{bucket.prefix}", f"{arn}/{bucket.prefix}/*"] if bucket.prefix else [f"{arn}/*"]
    actions = ["s3:GetObject"]
    if is_hashed:
        actions.append("s3:GetObjectAttributes")
    if is_writable:
        # Mountpoint, as we start it, only adds files. The role can replace them, too: Mountpoint sends no
        # condition with what it writes, so a policy can't ask for one (`s3:if-none-match`).
        actions += ["s3:AbortMultipartUpload", "s3:PutObject"]
    yield iam.PolicyStatement(actions=actions, resources=objects)
    listed = {"StringLike": {"s3:prefix": [bucket.prefix, f"{bucket.prefix}/*"]}} if bucket.prefix else {}
    yield iam.PolicyStatement(actions=["s3:ListBucket"], resources=[arn], conditions=listed)
    for resource in objects:
        if resource.endswith("*"):
            shown = resource.replace(Stack.of(role).partition, "<AWS::Partition>")
            acknowledge(
                role,
                f"AwsSolutions-IAM5[Resource::{shown}]",
                "The objects of the bucket and prefix that the service file names.",
            )
