"""LangChain's ChatOpenAI against the server: langchain_client.py URL."""
import os
import sys

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import run_checks  # noqa: E402


class Person(BaseModel):
    """A person."""
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)


def model(**options):
    return ChatOpenAI(model="default", base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, temperature=0, **options)


TURNS = [SystemMessage("Be brief."), HumanMessage("Say hello."), AIMessage("Hello."), HumanMessage("Again.")]


def invoke():
    reply = model(max_tokens=12).invoke(TURNS)
    assert isinstance(reply, AIMessage) and reply.content, reply
    assert reply.usage_metadata["output_tokens"] > 0, reply


def stream():
    whole = model(max_tokens=12).invoke(TURNS)
    text = "".join(chunk.content for chunk in model(max_tokens=12).stream(TURNS))
    assert text == whole.content, (text, whole)


def with_structured_output():
    person = model(max_tokens=120).with_structured_output(Person, method="json_schema").invoke("Invent a person.")
    assert isinstance(person, Person) and 0 <= person.age <= 150, person


run_checks([invoke, stream, with_structured_output])
