//! A part of a definition. A patch is merged as text and the result is read as a definition, so only the OpenAPI document needs
//! its schema. It is made from the schema of a definition: a new field of a job needs no change here.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema,
        schema::{AdditionalProperties, SchemaType, Type},
    },
};

use super::JobDefinition;

pub(crate) struct JobPatch;

const DESCRIPTION: &str = "A part of a definition, as a JSON merge patch. A field that is absent stays unchanged; `null` \
                           restores the default. Nested objects are patched in the same way.";

/// The fields that are objects. A patch of them is an object with any part of their fields.
const OBJECTS: [&str; 3] = ["schedule", "misfire", "retry"];

impl ToSchema for JobPatch {
    fn name() -> Cow<'static, str> {
        "JobPatch".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        JobDefinition::schemas(schemas);
    }
}

impl PartialSchema for JobPatch {
    fn schema() -> RefOr<Schema> {
        let mut schema = JobDefinition::schema();
        let RefOr::T(Schema::Object(patch)) = &mut schema else { return schema };
        patch.required.clear();
        patch.description = Some(DESCRIPTION.to_owned());
        patch.example = Some(serde_json::json!({
            "description": "nightly", "schedule": {"timezone": "Europe/Paris"}, "priority": 7
        }));
        for (name, field) in &mut patch.properties {
            if OBJECTS.contains(&name.as_str()) {
                *field = object(SchemaType::from_iter([Type::Object, Type::Null]));
            } else if name == "target" {
                *field = object(SchemaType::from(Type::Object));
            } else if let RefOr::T(Schema::Object(field)) = field {
                // A field that is absent stays unchanged.
                field.default = None;
                field.additional_properties = field.additional_properties.take().map(|_| nullable_text());
            }
        }
        schema
    }
}

fn object(kind: SchemaType) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(kind).build().into()
}

/// A value of a map, such as a label; `null` removes it.
fn nullable_text() -> Box<AdditionalProperties<Schema>> {
    Box::new(AdditionalProperties::RefOr(object(SchemaType::from_iter([Type::String, Type::Null]))))
}
